"""The Managed connector in real vLLM: whatever happens to the store, a right answer or one clean error.

A right colour alone proves nothing, since an engine that has the pixels can encode by itself: the connector's own
counters must say why.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import time
from pathlib import Path

import httpx
import pytest

from cluster import entries
from cluster.chat import QUESTIONS, ask, picture
from cluster.deployed import Deployed
from cluster.engine_requests import ask_with_pixels, ask_without_pixels, counters, healthy, prime, without_pixels

pytestmark = pytest.mark.node


def new_uuid() -> str:
    """An identifier that no engine has seen."""
    return secrets.token_hex(32)


def entry_file(epd: Deployed, store: Path, uuid: str) -> Path:
    """The file of an entry on the claim."""
    return entries.path(store, epd.get()["status"]["modelVersion"], uuid)


@pytest.mark.parametrize("pixels", [True, False], ids=["with pixels", "without pixels"])
def test_an_entry_is_read(epd: Deployed, pixels: bool) -> None:
    encoder, engine = epd.engine("encode"), epd.engine("prefill-decode")
    uuid, url = new_uuid(), picture("green")
    metadata = prime(encoder, {uuid: url})[uuid]
    before = counters(engine)
    answer = ask_with_pixels(engine, uuid, url) if pixels else ask_without_pixels(engine, uuid, metadata)
    after = counters(engine)
    assert (answer.status, answer.text) == (200, "green")
    assert after["hits"] == before["hits"] + 1
    assert after["local_encodes"] == before["local_encodes"]


def test_the_store_is_what_the_prefill_side_reads(epd: Deployed, store: Path) -> None:
    uuid, other = new_uuid(), new_uuid()
    metadata = prime(epd.engine("encode"), {uuid: picture("red"), other: picture("blue")})
    entries.exchange(entry_file(epd, store, uuid), entry_file(epd, store, other))
    assert ask_without_pixels(epd.engine("prefill-decode"), uuid, metadata[uuid]).text == "blue"


@pytest.mark.parametrize("damage", list(entries.DAMAGE))
def test_a_damaged_entry_is_a_miss_and_never_the_end_of_the_engine(epd: Deployed, store: Path, damage: str) -> None:
    befall, reason = entries.DAMAGE[damage]
    encoder, engine = epd.engine("encode"), epd.engine("prefill-decode")
    uuid, url = new_uuid(), picture("purple")
    metadata = prime(encoder, {uuid: url})[uuid]
    befall(entry_file(epd, store, uuid))

    before = counters(engine)
    refused = ask_without_pixels(engine, uuid, metadata)
    assert refused.status == 500
    assert healthy(engine)
    after = counters(engine)
    assert after["unavailable_requests"] == before["unavailable_requests"] + 1
    if reason:
        assert after[f"rejects/{reason}"] > before[f"rejects/{reason}"]

    answer = ask_with_pixels(engine, uuid, url)
    assert (answer.status, answer.text) == (200, "purple")
    assert healthy(engine)
    last = counters(engine)
    assert last["local_encodes"] == after["local_encodes"] + 1
    assert last["hits"] == before["hits"]


def test_a_streamed_request_without_its_entry_ends_with_an_error_event(epd: Deployed, store: Path) -> None:
    engine, uuid = epd.engine("prefill-decode"), new_uuid()
    metadata = prime(epd.engine("encode"), {uuid: picture("red")})[uuid]
    entry_file(epd, store, uuid).unlink()
    part = {"type": "image_embeds", "image_embeds": dict(metadata), "uuid": uuid}
    content = [{"type": "text", "text": QUESTIONS[0]}, part]
    request = {"model": "tinyvlm", "stream": True, "messages": [{"role": "user", "content": content}]}
    streamed = httpx.post(f"{engine}/v1/chat/completions", json=request, timeout=60).text
    assert '"error"' in streamed
    assert streamed.rstrip().endswith("data: [DONE]")
    assert healthy(engine)


@pytest.mark.parametrize("hostile", entries.HOSTILE)
def test_no_identifier_leaves_the_store(epd: Deployed, store: Path, hostile: str) -> None:
    mark = new_uuid()
    uuid = hostile.replace("{}", mark)
    prime(epd.engine("encode"), {uuid: picture("red")})
    assert entry_file(epd, store, uuid).is_file()
    assert mark not in epd.run("exec", epd.pods("encode")[0]["metadata"]["name"], "--", "ls", "-a", "/tmp")


def test_the_same_uuid_with_another_picture_size_is_encoded_anew(epd: Deployed) -> None:
    """The entry has another number of rows than the second picture needs."""
    engine, uuid = epd.engine("prefill-decode"), new_uuid()
    prime(epd.engine("encode"), {uuid: picture("red", size=56)})
    before = counters(engine)
    answer = ask_with_pixels(engine, uuid, picture("blue"))
    after = counters(engine)
    assert (answer.status, answer.text) == (200, "blue")
    assert after["rejects/rows"] == before["rejects/rows"] + 1


def test_what_was_deleted_is_published_again_while_the_encoder_holds_it(epd: Deployed, store: Path) -> None:
    encoder, uuid, url = epd.engine("encode"), new_uuid(), picture("orange")
    prime(encoder, {uuid: url})
    file = entry_file(epd, store, uuid)
    file.unlink()
    before = counters(encoder)
    metadata = prime(encoder, {uuid: url})[uuid]
    assert metadata, "the encoder says that the entry is there"
    assert file.is_file()
    assert counters(encoder)["republished"] == before["republished"] + 1
    assert ask_without_pixels(epd.engine("prefill-decode"), uuid, metadata).text == "orange"


def test_the_version_directory_deleted_under_the_engines_comes_back(epd: Deployed, store: Path) -> None:
    version = epd.get()["status"]["modelVersion"]
    away = store / f"away-{secrets.token_hex(4)}"
    os.rename(store / version, away)
    try:
        answer = ask(epd.url(), [picture("yellow")])
        assert (answer.status, answer.text) == (200, "yellow")
        again = ask(epd.url(), [picture("white")])
        assert (again.status, again.text) == (200, "white")
        assert entry_file(epd, store, again.items[0]).is_file()
    finally:
        entries.remove(away)


def test_clients_that_leave_do_not_hold_what_was_read_for_them(epd: Deployed) -> None:
    """Each leaves a little later than the one before, so that some leave while their picture is read."""
    encoder, engine = epd.engine("encode"), epd.engine("prefill-decode")
    told = prime(encoder, {new_uuid(): picture("red") for _ in range(8)})
    assert len(told) == 8
    before = counters(engine)
    for number, (uuid, metadata) in enumerate(told.items()):
        send_and_leave(engine, without_pixels(uuid, metadata, max_tokens=1000, ignore_eos=True), after=0.01 * number)
    answer = ask_without_pixels(engine, *next(iter(told.items())))
    assert (answer.status, answer.text) == (200, "red")
    assert healthy(engine)
    assert eventually_released(engine)
    assert counters(engine)["hits"] > before["hits"] + 1, "all left before the engine began: the test shows nothing"


def send_and_leave(engine: str, request: dict[str, object], *, after: float) -> None:
    """Send the request and close the connection `after` seconds without reading."""
    url, content = httpx.URL(engine), json.dumps(request).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {url.host}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((url.host, url.port or 80), timeout=5) as connection:
        connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        time.sleep(after)


def eventually_released(engine: str) -> bool:
    """Whether the connector comes to hold nothing. The engine accounts a step after the answer has gone out."""
    for _ in range(20):
        if counters(engine)["held"] == 0:
            return True
        ask_with_pixels(engine, new_uuid(), picture("red"))
    return False
