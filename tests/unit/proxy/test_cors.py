from __future__ import annotations

import re
from pathlib import Path

import pytest

from epd.proxy.cors import EXPOSED, Cors

ORIGIN = "https://chat.example.com"
PREFLIGHT = {
    "origin": ORIGIN,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type",
}


def test_by_default_no_origin_may_read() -> None:
    assert Cors().headers(PREFLIGHT) == {}
    assert Cors().preflight(PREFLIGHT) is None


def test_one_that_may() -> None:
    cors = Cors(frozenset({ORIGIN}))
    allowed = {"access-control-allow-origin": ORIGIN, "vary": "origin"}
    assert cors.headers({"origin": ORIGIN}) == {**allowed, "access-control-expose-headers": EXPOSED}
    reply = cors.preflight(PREFLIGHT)
    assert reply is not None
    assert (reply.status, reply.body) == (204, b"")
    assert reply.headers == {
        **allowed,
        "access-control-allow-methods": "POST",
        "access-control-allow-headers": "authorization,content-type",
        "access-control-max-age": "600",
    }


def test_pages_may_read_all_that_an_answer_says() -> None:
    documented = (Path(__file__).parents[3] / "docs" / "proxy.md").read_text()
    named = set(re.findall(r"^\| `(x-[a-z-]+)` \|", documented, re.MULTILINE))
    assert {*EXPOSED.split(", ")} == named | {"retry-after"}


def test_any_may_without_being_named() -> None:
    assert Cors(frozenset({"*"})).headers({"origin": "null"})["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("origin", ["https://evil.example.com", f"{ORIGIN}.evil.com", "null", ORIGIN.upper(), ""])
def test_others_may_not(origin: str) -> None:
    cors = Cors(frozenset({ORIGIN}))
    assert cors.headers({"origin": origin}) == {"vary": "origin"}
    assert cors.preflight({**PREFLIGHT, "origin": origin}) is None


def test_options_of_no_browser_is_no_preflight() -> None:
    cors = Cors(frozenset({ORIGIN}))
    assert cors.headers({}) == {}
    assert cors.preflight({"origin": ORIGIN}) is None
    assert cors.preflight({}) is None
