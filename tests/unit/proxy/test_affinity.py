"""Which requests share a key, and that it leads them to the same engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from epd.proxy.affinity import PREFIX_CHARACTERS, SESSION_HEADER, Affinity, Sticky, sticky
from epd.proxy.dialects import parse_messages, parse_responses, parse_text
from epd.proxy.lifting import Lifter
from epd.proxy.media import MediaPolicy
from epd.proxy.parsed import ParsedRequest
from epd.proxy.requests import parse_chat
from epd.proxy.routing import InFlight, choose_prefill
from unit.proxy.engines import member

POLICY = MediaPolicy()
SYSTEM = {"role": "system", "content": "You see colours."}


def user(text: str, *pictures: str) -> dict[str, Any]:
    urls = [f"data:image/png;base64,{picture}" for picture in pictures]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"role": "user", "content": [{"type": "text", "text": text}, *parts]}


def chat(*messages: dict[str, Any], **fields: Any) -> ParsedRequest:
    return parse_chat(json.dumps({"model": "m", **fields, "messages": messages}).encode(), policy=POLICY)


def prefix(request: ParsedRequest, tenant: str = "") -> Sticky | None:
    return sticky(Affinity.PREFIX, {}, request, tenant=tenant)


def session(request: ParsedRequest, **headers: str) -> Sticky | None:
    return sticky(Affinity.SESSION, {name.replace("_", "-"): value for name, value in headers.items()}, request)


def test_without_affinity_nothing_is_shared() -> None:
    request = chat(SYSTEM, user("a"), session_id="s")
    assert sticky(Affinity.NONE, {SESSION_HEADER: "s"}, request) is None


@pytest.mark.parametrize("affinity", Affinity)
def test_what_has_no_body_belongs_with_nothing(affinity: Affinity) -> None:
    assert sticky(affinity, {SESSION_HEADER: "s"}, ParsedRequest((b"",))) is None


def test_sessions_are_named_by_header_or_body() -> None:
    by_body = session(chat(user("a"), session_id="s"))
    assert by_body is not None
    assert session(chat(user("b", "AAAA"), session_id="s")) == by_body
    assert session(chat(user("b")), x_session_id="s") == by_body
    # the header goes first: whoever sets it is nearer to us
    assert session(chat(user("b"), session_id="t"), x_session_id="s") == by_body
    assert session(chat(user("a"), session_id="t")) != by_body
    assert [session(chat(user("a"))), session(chat(user("a")), x_session_id="")] == [None, None]


def test_turns_of_one_conversation_begin_alike() -> None:
    first = prefix(chat(SYSTEM, user("What colour?", "AAAA")))
    later = prefix(chat(SYSTEM, user("What colour?", "AAAA"), {"role": "assistant", "content": "red"}, user("Why?")))
    assert first is not None
    assert later == first


@pytest.mark.parametrize(
    "other",
    [
        chat(SYSTEM, user("What colour?", "BBBB")),
        chat(SYSTEM, user("What shape?", "AAAA")),
        chat(user("What colour?", "AAAA")),
        chat({"role": "developer", "content": "x"}, SYSTEM, user("What colour?", "AAAA")),
        chat(SYSTEM, user("What colour?", "AAAA"), model="adapter"),
        chat(SYSTEM, user("What colour?", "AAAA"), cache_salt="tenant"),
    ],
)
def test_what_shares_no_blocks_shares_no_key(other: ParsedRequest) -> None:
    assert prefix(other) != prefix(chat(SYSTEM, user("What colour?", "AAAA")))
    assert prefix(other) is not None


def test_a_key_given_for_that_goes_before_how_the_prompt_begins() -> None:
    assert prefix(chat(user("a"), prompt_cache_key="k")) == prefix(chat(user("b"), prompt_cache_key="k"))
    assert prefix(chat(user("a"), prompt_cache_key="k")) != prefix(chat(user("a")))


def test_tenants_share_no_key() -> None:
    assert prefix(chat(user("a")), "one") != prefix(chat(user("a")), "other")


def test_prompts_of_completions() -> None:
    def key(prompt: object) -> Sticky | None:
        return prefix(parse_text(json.dumps({"prompt": prompt}).encode(), policy=POLICY))

    long = "x" * PREFIX_CHARACTERS
    assert key(long + "a") == key(long + "b") != key("x")
    assert key([*range(PREFIX_CHARACTERS), 1]) == key([*range(PREFIX_CHARACTERS), 2]) != key([1])
    assert key(None) is None


def test_other_dialects() -> None:
    def responses(given: object, **fields: Any) -> Sticky | None:
        return prefix(parse_responses(json.dumps({"input": given, **fields}).encode(), policy=POLICY))

    def messages(system: str, *turns: str) -> Sticky | None:
        told = [{"role": "user", "content": turn} for turn in turns]
        return prefix(parse_messages(json.dumps({"system": system, "messages": told}).encode(), policy=POLICY))

    assert responses("a", instructions="i") != responses("a") != responses("b")
    turn = {"role": "user", "content": "a"}
    assert responses([turn]) == responses([turn, {"role": "user", "content": "b"}]) != responses("a")
    assert messages("s", "a") == messages("s", "a", "b") != messages("t", "a")
    assert messages("s", "a") != messages("s", "b")


def test_media_that_were_lifted_count_by_their_content() -> None:
    def key(letter: str) -> Sticky | None:
        lifter = Lifter(POLICY.hash_algorithm)
        lifter.feed(json.dumps({"messages": [SYSTEM, user("a", letter * 65536)]}).encode())
        return prefix(parse_chat(lifter.lifted(), policy=POLICY))

    assert (
        key("A")
        == key("A")
        == prefix(parse_chat(json.dumps({"messages": [SYSTEM, user("a", "A" * 65536)]}).encode(), policy=POLICY))
    )
    assert key("A") != key("B")


def test_a_key_leads_to_one_engine_whatever_is_in_flight_and_to_another_when_it_has_its_share() -> None:
    members = [member(name) for name in ("d0", "d1", "d2", "d3")]
    load, key = InFlight(), Sticky("k")
    first = choose_prefill(key, members, load)
    assert first is not None
    for one in members:
        load.begin(one.name, 8)
    load.begin(first.name, 1)
    # it has more than all others, and not more than a quarter above its share
    assert choose_prefill(key, members, load) == first
    load.begin(first.name, 4)
    second = choose_prefill(key, members, load)
    assert second not in (None, first)
    assert choose_prefill(key, members, load, excluded={first.name}) == second


def test_pairings_with_encoders_come_first_for_sticky_requests_too() -> None:
    members = [member(f"d{n}", pairing) for n, pairing in enumerate("pqpq")]
    for key in map(Sticky, "abcdefgh"):
        chosen = choose_prefill(key, members, InFlight(), encoder_pairings={"q"})
        assert chosen is not None
        assert chosen.pairing == "q"
        assert choose_prefill(key, members[:1], InFlight(), encoder_pairings={"q"}) == members[0]
    assert choose_prefill(Sticky("a"), [], InFlight()) is None
