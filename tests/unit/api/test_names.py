from __future__ import annotations

import re

import pytest

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


def test_the_longest_name_leaves_room() -> None:
    children = [names.role_deployment(LONGEST, role) for role in Role]
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
