from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.proxy.bodies import Bodies
from epd.proxy.identifiers import HashAlgorithm
from epd.proxy.intake import Intake
from epd.proxy.media import MediaPolicy
from epd.proxy.parsed import ParsedRequest
from epd.proxy.requests import parse_chat
from epd.proxy.rewrite import Reported, read_report, without_pixels
from epd.proxy.transport import Body
from unit.proxy.bodytexts import base64_text

POLICY = MediaPolicy(allowed_domains=frozenset({"a.example"}))
GRID = {"image_grid_thw": [1, 8, 8]}
COUNT = {"audio_num_tokens": [7]}
KEY = "c" * 64


def image(data: str = "AAAA", **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}", **fields}}


def url(address: str = "https://a.example/x.png") -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": address}}


SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
VIDEO = {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}
TEXT = {"type": "text", "text": "What is it?"}


def parsed(*content: Any, **fields: Any) -> ParsedRequest:
    document = {"messages": [{"role": "user", "content": list(content)}], **fields}
    return parse_chat(json.dumps(document).encode(), policy=POLICY)


def reports(request: ParsedRequest, *metadata: dict[str, Any]) -> dict[str, Reported]:
    """What an encoder would say of the items; their own identifier, or KEY where they have none."""
    pairs = zip(request.items, metadata, strict=True)
    return {item.key: Reported(identifier=item.identifier or KEY, metadata=fields) for item, fields in pairs}


def content(body: Body | None) -> list[Any]:
    assert isinstance(body, bytes)
    [message] = json.loads(body)["messages"]
    return list(message["content"])


def embeds(kind: str, metadata: dict[str, Any], uuid: str | None) -> dict[str, Any]:
    return {"type": f"{kind}_embeds", f"{kind}_embeds": metadata, "uuid": uuid}


def test_media_give_way_to_metadata_and_nothing_else_changes() -> None:
    request = parsed(TEXT, image(), "and", image("BBBB"), image(), temperature=0.5, seed=2**64, stream=True)
    first, second = request.items
    other = {"image_grid_thw": [1, 4, 4]}
    body = without_pixels(request, reports(request, GRID, other))
    assert content(body) == [
        TEXT,
        embeds("image", GRID, first.identifier),
        "and",
        embeds("image", other, second.identifier),
        embeds("image", GRID, first.identifier),
    ]
    assert isinstance(body, bytes)
    assert isinstance(request.body, bytes)
    sent, original = json.loads(body), json.loads(request.body)
    assert list(sent) == list(original)
    assert {**sent, "messages": 0} == {**original, "messages": 0}
    assert b"AAAA" not in body
    # and the original is there to be sent again
    assert content(request.body)[1] == {**image(), "uuid": first.identifier}


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (SOUND, "audio"),
        ({"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,AAAA"}}, "audio"),
        (VIDEO, "video"),
        (image(detail="low"), "image"),
    ],
)
def test_every_kind_of_part_has_its_own(part: dict[str, Any], kind: str) -> None:
    request = parsed(part)
    metadata = {"a": [1], "b": [0.5, 2]}
    assert content(without_pixels(request, reports(request, metadata))) == [
        embeds(kind, metadata, request.items[0].identifier)
    ]


def test_each_modality_goes_by_itself() -> None:
    request = parsed(image(), VIDEO, image("BBBB"))
    picture, video, other = request.items
    reported = reports(request, GRID, {}, GRID)
    assert content(without_pixels(request, reported)) == [
        embeds("image", GRID, picture.identifier),
        {**VIDEO, "uuid": video.identifier},
        embeds("image", GRID, other.identifier),
    ]
    # one picture of which nothing is known keeps all pictures, and no video
    reported = reports(request, GRID, {"video_grid_thw": [1, 8, 8]}, {})
    parts = content(without_pixels(request, reported))
    assert [part["type"] for part in parts] == ["image_url", "video_embeds", "image_url"]


def test_beside_sounds_all_go_or_none() -> None:
    request = parsed(image(), SOUND)
    picture, sound = request.items
    assert content(without_pixels(request, reports(request, GRID, COUNT))) == [
        embeds("image", GRID, picture.identifier),
        embeds("audio", COUNT, sound.identifier),
    ]
    assert without_pixels(request, reports(request, GRID, {})) is None
    assert without_pixels(request, reports(request, {}, COUNT)) is None


def test_what_was_lifted_of_another_modality_is_in_the_body() -> None:
    video = {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{base64_text(0, 9000)}"}}
    taken = Intake(share=Bodies(room=None).share(), limit=1 << 20, algorithm=HashAlgorithm.BLAKE3, length=None)
    taken.feed(json.dumps({"messages": [{"role": "user", "content": [image(), video]}]}).encode())
    request = parse_chat(taken.lifted(), policy=POLICY)
    assert isinstance(request.body, tuple)
    picture, clip = request.items
    assert content(without_pixels(request, reports(request, GRID, {}))) == [
        embeds("image", GRID, picture.identifier),
        {**video, "uuid": clip.identifier},
    ]


WHOLE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # what is reported of two pictures, of which the first could be left out
    "no metadata": (GRID, {}),
    "other fields": (GRID, {"image_sizes": [8, 8]}),
    "more fields": (GRID, {**GRID, "image_sizes": [8, 8]}),
}


@pytest.mark.parametrize("metadata", WHOLE.values(), ids=WHOLE.keys())
def test_all_items_of_a_modality_are_replaced_or_none(metadata: tuple[dict[str, Any], dict[str, Any]]) -> None:
    request = parsed(image(), image("BBBB"))
    assert without_pixels(request, reports(request, GRID, GRID)) is not None
    assert without_pixels(request, reports(request, *metadata)) is None


@pytest.mark.parametrize("name", ["mm_processor_kwargs", "media_io_kwargs"])
def test_options_of_the_request_keep_the_media(name: str) -> None:
    for value, sent in (({"min_pixels": 1}, None), ({}, None), (None, 1)):
        request = parsed(image(), **{name: value})
        body = without_pixels(request, reports(request, GRID))
        assert (body is None) == (sent is None)


def test_other_fields_that_primers_get_do_not() -> None:
    request = parsed(image(), model="m", priority=1, session_id="s")
    assert without_pixels(request, reports(request, GRID)) is not None


def test_an_item_that_the_encoder_named_otherwise_is_kept() -> None:
    request = parsed(image())
    [item] = request.items
    for name in ("", KEY, f"lora:{item.identifier}"):
        assert without_pixels(request, {item.key: Reported(identifier=name, metadata=GRID)}) is None


@pytest.mark.parametrize(
    ("name", "left_out"),
    [(KEY, True), (KEY * 2, True), (f"lora:{KEY}", False), ("renderer0-mm-1-image-0", False), ("", False)],
)
def test_a_url_is_named_by_what_the_encoder_found_there(name: str, left_out: bool) -> None:
    request = parsed(url())
    [item] = request.items
    body = without_pixels(request, {item.key: Reported(identifier=name, metadata=GRID)})
    assert (body is not None) == left_out
    if left_out:
        assert content(body) == [embeds("image", GRID, name)]


def test_a_request_without_media_has_nothing_to_leave_out() -> None:
    assert without_pixels(parsed("hi"), {}) is None


@given(st.data())
def test_a_body_has_media_or_metadata_of_a_modality_and_its_texts_in_place(data: st.DataObject) -> None:
    choices = [TEXT, "plain", image(), image("BBBB"), url(), SOUND, VIDEO]
    request = parsed(*data.draw(st.lists(st.sampled_from(choices), min_size=1, max_size=8)))
    metadata = st.sampled_from([GRID, COUNT, {}])
    reported = reports(request, *(data.draw(metadata) for _ in request.items))
    body = without_pixels(request, reported)
    before, after = content(request.body), content(body or request.body)
    assert [part for part in before if part in (TEXT, "plain")] == [part for part in after if part in (TEXT, "plain")]
    for kind, types in (("image", {"image_url"}), ("audio", {"input_audio"}), ("video", {"video_url"})):
        seen = {part["type"] for part in after if isinstance(part, dict) and kind in part["type"]}
        assert seen in (set(), types, {f"{kind}_embeds"})
    for was, now in zip(before, after, strict=True):
        assert was == now or (now["uuid"] == was.get("uuid", KEY) and now[now["type"]])


# what encoders say


def report(**entries: Any) -> bytes:
    return json.dumps({"ec_transfer_params": entries}).encode()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (report(k={"item_indices": [1], "metadata": GRID}, l={"item_indices": [0, 2], "metadata": {}}), "l k+ l"),
        (report(k={"item_indices": [0, 1, 2], "metadata": GRID}), "k+ k+ k+"),
        # an entry with an index that is none: its other items are named, no more
        (report(k={"item_indices": [0, 3], "metadata": GRID}), "k  "),
        (report(k={"item_indices": [0, -1], "metadata": GRID}), "k  "),
        (report(k={"item_indices": [True], "metadata": GRID}), "  "),
        (report(k={"item_indices": ["0"], "metadata": GRID}), "  "),
        # two that speak of one item
        (report(k={"item_indices": [0, 1], "metadata": GRID}, l={"item_indices": [0], "metadata": GRID}), "l k+ "),
        (report(k={"item_indices": [0, 0], "metadata": GRID}), "k  "),
        (report(k={"item_indices": [0]}, l={}, m=None, n={"item_indices": 1}), "k  "),
        (b'{"ec_transfer_params":null}', "  "),
        (b"{}", "  "),
        (b"[]", "  "),
        (b"\xff", "  "),
    ],
)
def test_reports_are_matched_by_index(answer: bytes, expected: str) -> None:
    items = [
        Reported(identifier=word.rstrip("+"), metadata=GRID if word.endswith("+") else {})
        for word in expected.split(" ")
    ]
    assert read_report(answer, 3) == tuple(items)


@pytest.mark.parametrize(
    ("metadata", "usable"),
    [
        ({"a": [1, 2], "b": [0.5]}, True),
        ({"a": [1], "b": []}, False),
        ({"a": [[1, 2]]}, False),
        ({"a": [True]}, False),
        ({"a": ["1"]}, False),
        ({"a": [float("nan")]}, False),
        ({"a": [float("nan")], "b": [10**400]}, False),
        ({"a": 1}, False),
        ({"a": "AAAA"}, False),
        ({}, False),
        ([1], False),
        (None, False),
    ],
)
def test_metadata_is_vectors_of_numbers_or_none(metadata: Any, usable: bool) -> None:
    [item] = read_report(report(k={"item_indices": [0], "metadata": metadata}), 1)
    assert item == Reported(identifier="k", metadata=metadata if usable else {})
