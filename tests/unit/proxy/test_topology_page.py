from __future__ import annotations

import re
from typing import Any

import pytest

from epd.proxy import topology_page
from epd.proxy.topology_page import HEADERS, render, wants_page

EVIL = "\"><script>alert(1)</script>'"


def member(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "role": "encode",
        "ready": True,
        "health": "healthy",
        "pairing": "p",
        "modelVersion": "v1",
        "address": "http://10.0.0.1:8000",
        "inFlight": 0,
        "begun": 7,
        **fields,
    }


def document(*members: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "time": 1.5,
        "namespace": "ai",
        "epd": "qwen",
        "roles": ["encode", "prefill-decode"],
        "encoderFailurePolicy": "Fallback",
        "suspended": False,
        "draining": False,
        "inFlight": 3,
        "queued": 2,
        "totals": {"requests": 9},
        "misconfigured": {},
        "members": list(members),
        **fields,
    }


@pytest.mark.parametrize(
    ("accept", "page"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", True),
        ("text/html", True),
        ("application/json, text/html", False),
        ("text/plain, TEXT/HTML;q=0.5", True),
    ],
)
def test_only_browsers_get_the_page(accept: str, page: bool) -> None:
    assert wants_page(accept) is page


def test_whatever_it_is_told_stays_text() -> None:
    wrong = {EVIL: {"cause": EVIL, "model": EVIL, "message": EVIL}}
    odd = member(EVIL, role=EVIL, health=EVIL, pairing=EVIL, modelVersion=EVIL, address=EVIL)
    told = document(odd, namespace=EVIL, epd=EVIL, encoderFailurePolicy=EVIL, misconfigured=wrong, totals={EVIL: 1})
    page = render(told)
    assert page.count("<script>") == 1
    assert "alert(1)" in page
    assert "<script>alert" not in page
    # nor does it end an attribute
    assert EVIL[:2] + "&" not in page


def test_engines_stand_in_their_pairings_in_order() -> None:
    page = render(
        document(
            member("b", role="prefill-decode", pairing="p1", inFlight=4),
            member("a", pairing="p2", ready=False, modelVersion="v2"),
            member("c", pairing="p1", health="ejected"),
        )
    )
    shown = re.findall(r"<code>(\w+)</code></th>|Pairing <code>(\w+)<", page)
    assert [name or pairing for name, pairing in shown] == ["p1", "c", "b", "p2", "a"]
    assert re.findall(r"[●○] [\w ]+", page) == ["● ejected", "● ready", "○ not ready"]
    assert "· 2 of 2 ready" in page
    assert "· 0 of 1 ready" in page
    assert 'max="4" value="4"' in page
    assert 'data-rate="requests" data-total="9"' in page


def test_notices() -> None:
    calm = render(document(member("a")))
    assert calm.count('class="notice"') == 1
    wrong = {"p": {"cause": "unknown-model", "model": "lora", "message": "encoders answer 404 for lora"}}
    loud = render(document(suspended=True, draining=True, misconfigured=wrong))
    assert re.findall(r'class="notice">([^<]*)<', loud) == [
        "Suspended: every request is answered 503.",
        "Draining: the process is about to end.",
        "No engine is known.",
        "Misconfigured, pairing p: encoders answer 404 for lora",
    ]


def test_encoders_that_refuse_what_they_should_do_show_it() -> None:
    engines = [
        member("a", pairing="p"),
        member("b", pairing="p", ready=False),
        member("c", pairing="p", role="prefill-decode"),
        member("d", pairing="q"),
    ]
    page = render(document(*engines, misconfigured={"p": {"cause": "no-route", "model": "", "message": "no"}}))
    states = re.findall(r'class="(\w+)">[●○] ([\w ]+)', page)
    assert states == [("bad", "misconfigured"), ("warn", "not ready"), ("good", "ready"), ("good", "ready")]


def test_more_engines_than_anybody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology_page, "SHOWN_MEMBERS", 2)
    engines = [member(f"e{number}", ready=number < 4) for number in range(5)]
    page = render(document(*engines, member("other", pairing="q")))
    assert page.count("<tr><th") == 2 + 1
    assert "and 4 more engines" in page
    # counted is what there is, not what is shown of it
    assert re.findall(r"· (\d+ of \d+) ready", page) == ["4 of 5"]


def test_scripts_and_styles_are_allowed_by_their_hashes_alone() -> None:
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy
    assert len(re.findall(r"'sha256-[A-Za-z0-9+/]{43}='", policy)) == 2
    assert "unsafe" not in policy
    page = render(document(member("a")))
    assert not re.search(r' (style|on\w+)="|https?://(?!10\.0\.0\.1)|src=', page)
