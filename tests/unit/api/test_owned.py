"""Every spelling of an owned flag is found and nothing else, with argparse over vLLM's own options as the judge."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.api.owned import ALIASES, OWNED_ENV, OWNED_FLAGS, ROLE_FLAGS, SHARED_FLAGS, disables_content_keys, find_owned

OPTIONS = tuple(
    (line.startswith("- "), tuple(line.removeprefix("- ").split()))
    for line in (Path(__file__).parent / "vllm_0_32_options.txt").read_text().splitlines()
)
"""(switch, spellings) of every option of `vllm serve` 0.32, as its parser lists them."""

KNOWN = {spelling for _, spellings in OPTIONS for spelling in spellings}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]  # argparse's own would exit
        raise argparse.ArgumentError(None, message)


@cache
def parser() -> argparse.ArgumentParser:
    made = _Parser(add_help=False, exit_on_error=False)
    for switch, spellings in OPTIONS:
        if switch:
            negated = [spelling for spelling in spellings if spelling.startswith("--no-")]
            positive = [spelling for spelling in spellings if spelling not in negated]
            for names in filter(None, (positive, negated)):
                made.add_argument(*names, dest=names[0], action="store_true")
        else:
            made.add_argument(*spellings, dest=spellings[0], nargs="?", const="given")
    return made


@cache
def meant(word: str) -> str | None:
    """The option that vLLM's parser takes `word` for; None if it knows none, or several."""
    if word.startswith("--"):  # FlexibleArgumentParser: dashes up to the first dot, the rest is a key
        key, separator, value = word.partition("=")
        key = re.sub(r"(?<=--)[^\.]*", lambda match: match[0].replace("_", "-"), key, count=1)
        word = key.partition(".")[0] + separator + value
    try:
        seen, unknown = parser().parse_known_args([word])
    except argparse.ArgumentError:
        return None
    given_options = [name for name, value in vars(seen).items() if value]
    return None if unknown or not given_options else given_options[0]


def owned_meaning(word: str, refused: object) -> str | None:
    option = meant(word)
    return option if option in refused else None  # type: ignore[operator]  # a mapping


def spellings_of(option: str) -> Iterator[str]:
    yield option
    yield f"{option}=1"
    yield option[:2] + option[2:].replace("-", "_")
    yield f"{option}.key"
    yield f"{option}.key_a+=1"
    if option.startswith("--"):
        yield from (option[:end] for end in range(3, len(option)))


@pytest.mark.parametrize("option", sorted(KNOWN))
def test_every_spelling_means_what_the_parser_says(option: str) -> None:
    for word in spellings_of(option):
        for role, refused in ((False, OWNED_FLAGS), (True, ROLE_FLAGS)):
            meaning = meant(word)
            found = find_owned([word], role=role)
            if meaning in refused:
                assert [violation.flag for violation in found] == [meaning], word
            elif meaning is not None:
                assert found == (), word


def test_owned_flags_are_flags_of_the_engine() -> None:
    assert set(ROLE_FLAGS) - KNOWN == set()
    assert set(ALIASES) - KNOWN == set()


def test_aliases_stand_for_what_the_parser_says() -> None:
    assert {alias: meant(alias) for alias in ALIASES} == ALIASES


@pytest.mark.parametrize(
    ("word", "flag"),
    [
        ("-qawq", "--quantization"),
        ("-tp2", "--tensor-parallel-size"),
        ("-tp=2", "--tensor-parallel-size"),
        ("-t", "--tensor-parallel-size"),
        ("-dp8", "--data-parallel-size"),
        ("--ec-transfer", "--ec-transfer-config"),
        ("--ec_transfer=x", "--ec-transfer-config"),
        ("--media-io-kwargs.video.num_frames", "--media-io-kwargs"),
        ("--no-language", "--no-language-model-only"),
    ],
)
def test_words(word: str, flag: str) -> None:
    assert [violation.flag for violation in find_owned([word])] == [flag]


def test_position_and_reason() -> None:
    (found,) = find_owned(["--seed", "1", "--port=80"])

    assert (found.index, found.flag) == (2, "--port")
    assert found.reason == "is set by the operator; use port of the role"


def test_values_are_no_flags() -> None:
    assert find_owned(["--seed", "-1", "port", "--", "-", "", "{}", "--chat-template", "a--model"]) == ()


def test_shared_flags_are_refused_for_roles_alone() -> None:
    assert [find_owned([flag]) for flag in SHARED_FLAGS] == [()] * len(SHARED_FLAGS)
    assert [found.flag for flag in SHARED_FLAGS for found in find_owned([flag], role=True)] == list(SHARED_FLAGS)


def test_the_tables_are_disjoint() -> None:
    assert set(SHARED_FLAGS) & set(OWNED_FLAGS) == set()


def test_reasons_read_on_after_the_name() -> None:
    reasons = {*ROLE_FLAGS.values(), *OWNED_ENV.values()}

    assert [reason for reason in reasons if not re.match(r"(is|are|would|changes) ", reason)] == []
    assert [reason for reason in reasons if reason.endswith(".")] == []


def cel_refuses(word: str, *, role: bool) -> bool:
    """What the rule in `epd.api.engine_rules` says, `split`, `replace` and `in` being those of CEL."""
    name = word.split("=")[0].split(".")[0].replace("_", "-")
    if not word.startswith("-"):
        return False
    return name in (ROLE_FLAGS if role else OWNED_FLAGS) or name in ALIASES


_parts = st.one_of(
    st.sampled_from([*sorted(ROLE_FLAGS), *ALIASES]),
    st.sampled_from(["=", ".", "_", "-", "--", "+", "a", "", "{}", " "]),
    st.text(max_size=3),
)
words = st.lists(_parts, max_size=5).map("".join)
respelled = st.tuples(
    st.sampled_from([*sorted(ROLE_FLAGS), *ALIASES]), st.sampled_from(["", "=1", ".a=1", ".a_b+"])
).map(lambda parts: parts[0].replace("-", "_").replace("__", "--", 1) + parts[1])


@given(word=st.one_of(words, respelled), role=st.booleans())
def test_what_cel_refuses_is_found_too(word: str, role: bool) -> None:
    if cel_refuses(word, role=role):
        assert find_owned([word], role=role) != ()


@pytest.mark.parametrize(
    ("args", "index"),
    [
        (["--mm-processor-cache-gb", "0"], 0),
        (["--seed", "1", "--mm_processor_cache_gb=0.0"], 2),
        (["--mm-processor-cache-g", "0"], 0),
        (["--mm-processor-cache-gb", "4"], None),
        (["--mm-processor-cache-gb"], None),
        (["--mm-processor-cache-type", "0"], None),
        (["0"], None),
    ],
)
def test_disabled_content_keys(args: list[str], index: int | None) -> None:
    assert disables_content_keys(args) == index
