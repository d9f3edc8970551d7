from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.connector import layout


@given(st.text(st.characters(codec=None, exclude_categories=()), max_size=50))
def test_whatever_a_client_calls_an_item_names_one_file_in_one_shard(identifier: str) -> None:
    shard, name = layout.entry_name(identifier)
    assert layout.SHARD_PATTERN.fullmatch(shard)
    assert layout.ENTRY_PATTERN.fullmatch(name)
    assert name.startswith(shard)


@given(st.lists(st.text(max_size=8), unique=True, max_size=20))
def test_different_identifiers_have_different_files(identifiers: list[str]) -> None:
    assert len({layout.entry_name(identifier) for identifier in identifiers}) == len(identifiers)


def test_the_file_of_an_identifier_never_changes() -> None:
    assert layout.entry_name("abc") == (
        "ba",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad.safetensors",
    )


@pytest.mark.parametrize("name", ["v1-qwen2-vl-0123456789ab", "v12-m-ffffffffffff"])
def test_names_of_versions(name: str) -> None:
    assert layout.is_version(name)
    assert layout.record_name(name) == f"{name}.json"
    assert layout.widths_name(name) == f"{name}.widths.json"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".epd-gc",
        "lost+found",
        "v1-m-0123456789",
        "v1-m-0123456789ab/x",
        "v1-M-0123456789ab",
        "v1-m-0123456789ab\n",
    ],
)
def test_names_that_are_no_versions(name: str) -> None:
    assert not layout.is_version(name)


def test_housekeeping_is_neither_version_nor_entry() -> None:
    assert not layout.is_version(layout.HOUSEKEEPING)
    assert not layout.ENTRY_PATTERN.fullmatch(layout.TEMPORARY_PREFIX + "0" * 64 + layout.ENTRY_SUFFIX)
