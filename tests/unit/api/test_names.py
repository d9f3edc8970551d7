from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.api import names
from epd.api.names import NAME_MAX_LENGTH, NAME_PATTERN, ROLE_CONDITIONS, ConditionType, Role

LONGEST = "a" * NAME_MAX_LENGTH
LABEL = 63
"""Longest label value and DNS label (RFC 1123); a pod's name is its host name."""


def test_names_of_children() -> None:
    assert [names.role_deployment("demo", role) for role in Role] == [
        *("demo-encode", "demo-prefill", "demo-decode", "demo-prefilldecode"),
    ]
    assert names.proxy("demo") == "demo-proxy"
    assert names.service("demo") == "demo"
    assert names.encoder_cache_claim("demo") == "demo-encoder-cache"
    assert names.engine_service_account("demo") == "demo-engine"
    assert names.preflight("demo", "0a1b") == "demo-preflight-0a1b"
    assert names.connector_config_map("demo", "0a1b") == "demo-connector-0a1b"
    assert names.collector("ec") == "ec-collector"
    assert names.collector(names.encoder_cache_claim("demo")) == "demo-encoder-cache-collector"


@pytest.mark.parametrize(
    ("claim", "sub_path", "pattern"),
    [
        ("ec", "qwen", "ec-collector-[0-9a-f]{8}"),
        ("e.c", "", "e-c-collector-[0-9a-f]{8}"),
        ("c" * 53, "", "c{53}-collector"),
        ("c" * 54, "", "c{44}-collector-[0-9a-f]{8}"),
        ("c" * 43 + "-" * 10 + "c", "", "c{43}-collector-[0-9a-f]{8}"),
        ("c" * 253, "a" * 1024, "c{44}-collector-[0-9a-f]{8}"),
    ],
)
def test_collectors_of_any_claim(claim: str, sub_path: str, pattern: str) -> None:
    found = names.collector(claim, sub_path)

    assert re.fullmatch(pattern, found)
    assert len(found) <= LABEL


@given(st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True), st.text(max_size=20))
def test_a_collectors_name_is_a_label_and_a_host_name(claim: str, sub_path: str) -> None:
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", names.collector(claim, sub_path))


def test_each_directory_of_each_claim_has_a_collector_of_its_own() -> None:
    roots = [
        ("a", ""),
        ("a", "b"),
        ("a", "c"),
        ("a-b", ""),
        ("a.b", ""),
        ("a-collector", ""),
        ("a", "b/c"),
        ("a.b", "c"),
    ]

    assert len({names.collector(*root) for root in roots}) == len(roots)


def test_the_longest_name_leaves_room() -> None:
    children = [names.role_deployment(LONGEST, role) for role in Role]
    children += [names.collector(names.encoder_cache_claim(LONGEST))]
    children += [names.proxy(LONGEST), names.service(LONGEST), names.encoder_cache_claim(LONGEST)]

    assert max(map(len, children)) <= LABEL


@pytest.mark.parametrize(("a", "b"), [("foo", "foo-prefill"), ("foo", "foo-prefilldecode"), ("foo", "foo-encoder")])
def test_children_of_neighbours_do_not_collide(a: str, b: str) -> None:
    def children(epd: str) -> set[str]:
        return {names.role_deployment(epd, role) for role in Role} | {names.proxy(epd)}

    assert children(a) & children(b) == set()


@pytest.mark.parametrize("name", ["a", "qwen-vl", "a1"])
def test_good_names(name: str) -> None:
    assert re.fullmatch(NAME_PATTERN, name)


@pytest.mark.parametrize("name", ["", "-a", "a-", "1a", "A", "a.b", "a_b"])
def test_bad_names(name: str) -> None:
    assert not re.fullmatch(NAME_PATTERN, name)


def test_conditions_of_roles() -> None:
    assert ROLE_CONDITIONS == {
        Role.ENCODE: ConditionType.ENCODE_READY,
        Role.PREFILL_DECODE: ConditionType.PREFILL_DECODE_READY,
    }
