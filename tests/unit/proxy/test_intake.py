from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epd.proxy import intake, lifting
from epd.proxy.bodies import Bodies
from epd.proxy.errors import BodyTooLargeError, InvalidRequestError, OverloadedError
from epd.proxy.identifiers import HashAlgorithm
from epd.proxy.intake import Intake
from epd.proxy.lifting import LiftedBody
from epd.proxy.media import KINDS, MediaPolicy, parse_media
from epd.proxy.parsed import ParsedRequest, primer_body
from epd.proxy.requests import parse_chat
from epd.proxy.transport import Body
from unit.proxy.bodytexts import base64_text, bodies, slices

POLICY = MediaPolicy(allowed_domains=frozenset({"a.example"}))


def take(*pieces: bytes, algorithm: HashAlgorithm = HashAlgorithm.BLAKE3) -> LiftedBody:
    taken = Intake(share=Bodies(room=None).share(), limit=1 << 26, algorithm=algorithm, length=None)
    for piece in pieces:
        taken.feed(piece)
    return taken.lifted()


def whole(body: Body) -> bytes:
    return body if isinstance(body, bytes) else b"".join(body)


def meaning(value: object) -> object:
    """A value in a form in which 1, 1.0 and true differ, and 0.0 and -0.0."""
    if isinstance(value, dict):
        return {key: meaning(child) for key, child in value.items()}
    return [meaning(child) for child in value] if isinstance(value, list) else (type(value), repr(value))


def read(body: Body) -> object:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    return meaning(json.loads(whole(body), object_pairs_hook=once))


def outcome(body: bytes | LiftedBody) -> object:
    """All that follows from a body: its refusal, or what is sent on."""
    try:
        request = parse_chat(body, policy=POLICY)
    except InvalidRequestError as error:
        return (error.error_code, error.param)
    items = [(item.kind, item.part_type, item.identifier, item.key) for item in request.items]
    work = [request.work_key(item, authorization="") for item in request.items]
    replaced = request.body_with({item.key: b'{"type":"x"}' for item in request.items[:1]})
    primer = read(primer_body(request, request.items)) if items else None
    return read(request.body), read(replaced), items, work, primer


def expected(body: bytes) -> object:
    """What is sent on of a body that is accepted, by Python's own parser."""
    document = json.loads(body)
    for name in ("ec_transfer_params", "kv_transfer_params", "request_id"):
        document.pop(name, None)
    for message in document["messages"]:
        content = message.get("content")
        for index, part in enumerate(content if isinstance(content, list) else []):
            if isinstance(part, dict) and part["type"] in KINDS:
                content[index] = parse_media(part, path="", policy=POLICY).part()
            elif isinstance(part, dict):
                part.pop("uuid", None)
    return meaning(document)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_is_lifted_means_what_it_meant_however_it_arrives(data: st.DataObject) -> None:
    body = data.draw(bodies())
    # small enough that most payloads are long
    with mock.patch.object(lifting, "RUN", 600), mock.patch.object(intake, "LIFT_FROM", 200):
        lifted = [take(body), take(*data.draw(slices(body)))]
    plain = outcome(body)
    assert [outcome(each) for each in lifted] == [plain, plain]
    if len(plain) == 5:  # type: ignore[arg-type] # a tuple in both cases
        assert plain[0] == expected(body)  # type: ignore[index] # as above


def picture(size: int, seed: int = 0, head: str = "data:image/png;base64,") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": head + base64_text(seed, size)}}


def chat(*content: Any, **fields: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": list(content)}], **fields}).encode()


def lengths(body: Body) -> list[int]:
    """Lengths of the pieces of a body that are not small."""
    return [len(piece) for piece in body if len(piece) > 1000] if isinstance(body, tuple) else []


def parsed(*pieces: bytes) -> ParsedRequest:
    return parse_chat(take(*pieces), policy=POLICY)


def test_a_large_payload_is_never_copied() -> None:
    data = chat("x", picture(100_000), picture(50_000, 1), picture(50_000, 1))
    request = parsed(data)
    assert lengths(request.body) == [100_000, 50_000, 50_000]
    assert lengths(primer_body(request, request.items)) == [100_000, 50_000]
    assert isinstance(request.body, tuple)
    for piece in request.body:
        assert len(piece) < 1000 or (isinstance(piece, memoryview) and piece.obj is data)


def test_a_payload_is_not_copied_for_other_fields_either() -> None:
    request = parsed(chat(picture(100_000), stream=True)).with_fields({"stream": False})
    assert lengths(request.body) == [100_000]


def test_pieces_of_a_network_are_kept_as_they_came_unless_they_are_small() -> None:
    data = chat(picture(100_000))
    large = [data[start : start + 30_000] for start in range(0, len(data), 30_000)]
    small = [data[start : start + 1000] for start in range(0, len(data), 1000)]
    assert [len(lengths(parsed(*pieces).body)) for pieces in (large, small)] == [4, 3]
    assert whole(parsed(*small).body) == whole(parsed(data).body)


@pytest.mark.parametrize(
    "part",
    [
        picture(9000),
        picture(9000, head="DATA:image/png;base64,"),
        {"type": "input_audio", "input_audio": {"data": base64_text(0, 9000), "format": "wav"}},
        {"type": "text", "text": base64_text(0, 9000)},
    ],
)
def test_what_is_lifted(part: dict[str, Any]) -> None:
    assert lengths(parsed(chat(part)).body) == [9000]


SPOILED = {
    "escaped slash": lambda text: text.replace("/", "\\/"),
    "escaped character": lambda text: text[:-1] + "\\u0041",
    "line break": lambda text: text[:5000] + "\n" + text[5000:],
    "not ASCII": lambda text: text[:5000] + "ü" + text[5000:],
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())
def test_what_is_written_otherwise_than_it_is_is_parsed_whole(spoil: Any) -> None:
    text = base64_text(0, 9000)
    body = chat(picture(0)).replace(b"base64,", b"base64," + spoil(text).encode())
    for pieces in ([body], [body[:6000], body[6000:]]):
        lifted = take(*pieces)
        assert not lifted.payloads
        assert lifted.skeleton == body
        assert outcome(lifted) == outcome(body)


def test_equal_keys_stay_equal() -> None:
    key = base64_text(0, 9000)
    body = b'{"messages":[],"%b" \n:1,"%b":2}' % (key.encode(), key.encode())
    assert read(parsed(body).body) == meaning({"messages": [], key: 2})


def test_the_algorithm_is_the_one_that_is_asked_for() -> None:
    body = chat(picture(9000))
    for algorithm in HashAlgorithm:
        policy = MediaPolicy(hash_algorithm=algorithm)
        [plain] = parse_chat(body, policy=policy).items
        [lifted] = parse_chat(take(body, algorithm=algorithm), policy=policy).items
        assert lifted.identifier == plain.identifier


def test_options_are_measured_with_what_was_lifted_out_of_them() -> None:
    body = chat(picture(9000), mm_processor_kwargs={"a": base64_text(0, 70_000)})
    with pytest.raises(InvalidRequestError, match="too large together"):
        parsed(body)


def test_a_mark_is_another_one_each_time() -> None:
    body = chat(picture(9000))
    marks = {take(body).payloads.mark for _ in range(3)}
    assert (len(marks), {len(mark) for mark in marks}) == (3, {32})


def test_the_limit_holds_for_what_is_announced_and_for_what_comes() -> None:
    share = Bodies(room=None).share()
    with pytest.raises(BodyTooLargeError):
        Intake(share=share, limit=10, algorithm=HashAlgorithm.BLAKE3, length=11)
    taken = Intake(share=share, limit=10, algorithm=HashAlgorithm.BLAKE3, length=10)
    taken.feed(b"12345")
    taken.feed(b"67890")
    assert taken.lifted().skeleton == b"1234567890"
    with pytest.raises(BodyTooLargeError):
        taken.feed(b"1")


def test_bodies_share_the_memory() -> None:
    room = Bodies(room=10)
    other, share = room.share(), room.share()
    other.grow(4)
    with pytest.raises(OverloadedError):
        Intake(share=share, limit=100, algorithm=HashAlgorithm.BLAKE3, length=7)
    taken = Intake(share=share, limit=100, algorithm=HashAlgorithm.BLAKE3, length=None)
    taken.feed(b"123456")
    with pytest.raises(OverloadedError):
        taken.feed(b"7")


def test_who_announces_much_and_sends_little_keeps_nobody_out() -> None:
    room = Bodies(room=100)
    slow = [Intake(share=room.share(), limit=100, algorithm=HashAlgorithm.BLAKE3, length=90) for _ in range(5)]
    for taken in slow:
        taken.feed(b"12")
    assert room.taken == 10
    Intake(share=room.share(), limit=100, algorithm=HashAlgorithm.BLAKE3, length=80).feed(b"x" * 80)
    assert room.taken == 90
    with pytest.raises(OverloadedError):
        slow[0].feed(b"x" * 88)


@pytest.mark.interpreted
@pytest.mark.parametrize("size", [1, 7, 100, 5000])
def test_small_pieces_are_looked_through_together(size: int) -> None:
    body = chat("t", picture(30_000), "t" * 9000)
    fed: list[int] = []
    feed = lifting.Lifter.feed

    def noted(lifter: lifting.Lifter, data: bytes) -> None:
        fed.append(len(data))
        feed(lifter, data)

    with mock.patch.object(lifting.Lifter, "feed", noted):
        lifted = take(*(body[start : start + size] for start in range(0, len(body), size)))
    assert outcome(lifted) == outcome(body)
    assert lifted.payloads
    assert sum(fed) == len(body)
    assert min(fed[:-1]) >= intake.GATHERED
