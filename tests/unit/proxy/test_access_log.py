from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from epd.api.names import Role
from epd.proxy import access_log
from epd.proxy.access_log import NO_ACCESS_LOG, AccessLog, AccessPolicy, line, parse_access_policy
from epd.proxy.record import ANSWERED, BROKEN, FAILED, LEFT, REFUSED, Record, Trail
from epd.proxy.transport import Cause

OUTCOMES = (ANSWERED, REFUSED, FAILED, BROKEN, LEFT)


def record(**fields: Any) -> Record:
    trail = fields.pop("trail", Trail())
    told: dict[str, Any] = {
        "request_id": "r1",
        "method": "POST",
        "route": "/v1/chat/completions",
        "status": 200,
        "outcome": ANSWERED,
        "seconds": 0.25,
        "received": 100,
        "sent": 2000,
        "headers": {},
        "tenant": "",
    }
    return Record(trail=trail, **{**told, **fields})


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("None", NO_ACCESS_LOG),
        ("Errors", AccessPolicy(errors=True, rate=0)),
        ("All", AccessPolicy(errors=True, rate=1)),
        ("Sampled:0.25", AccessPolicy(errors=True, rate=0.25)),
    ],
)
def test_policies(text: str, policy: AccessPolicy) -> None:
    assert parse_access_policy(text) == policy


@pytest.mark.parametrize(
    "text", ["", "errors", "Sampled", "Sampled:", "Sampled:0", "Sampled:1.5", "Sampled:nan", "All:1"]
)
def test_what_is_no_policy(text: str) -> None:
    with pytest.raises(ValueError, match="is none of"):
        parse_access_policy(text)


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (AccessPolicy(), {FAILED, BROKEN}),
        (AccessPolicy(rate=1), set(OUTCOMES)),
        (AccessPolicy(rate=0.5), {FAILED, BROKEN}),
        (AccessPolicy(rate=0.6), set(OUTCOMES)),
    ],
)
def test_what_gets_a_line(policy: AccessPolicy, wanted: set[str]) -> None:
    log = AccessLog(policy, write=lambda _: None, chance=lambda: 0.5)
    assert {outcome for outcome in OUTCOMES if log.wants(outcome)} == wanted
    log.close()


def test_a_line_of_a_request_with_everything() -> None:
    trail = Trail()
    trail.first_token = 0.125
    trail.waited(0.5, "")
    trail.waited(1, "queue_timeout")
    trail.retried(Role.ENCODE, Cause.STATUS)
    headers = {
        "content-type": "text/event-stream",
        "x-request-id": "r1",
        "x-epd-encode": "fallback",
        "x-epd-encoders": "e0,e1",
        "x-epd-items": "0123",
        "x-epd-prefill": "p0",
        "x-epd-decode": "d0",
        "x-epd-model-version": "v1",
    }
    said = line(record(headers=headers, trail=trail, tenant="team-a", trace_id="ab", code="x"), at=1.5)
    assert said == {
        "time": "1970-01-01T00:00:01.500Z",
        "request_id": "r1",
        "trace_id": "ab",
        "tenant": "team-a",
        "method": "POST",
        "route": "/v1/chat/completions",
        "status": 200,
        "code": "x",
        "outcome": "answered",
        "seconds": 0.25,
        "queued_seconds": 1.5,
        "first_token_seconds": 0.125,
        "received_bytes": 100,
        "sent_bytes": 2000,
        "encode": "fallback",
        "encoders": ["e0", "e1"],
        "prefill": "p0",
        "decode": "d0",
        "model_version": "v1",
        "retries": ["encode:status"],
    }


def test_a_line_of_a_client_that_left() -> None:
    assert line(record(status=None, outcome=LEFT), at=0) == {
        "time": "1970-01-01T00:00:00.000Z",
        "request_id": "r1",
        "method": "POST",
        "route": "/v1/chat/completions",
        "outcome": "left",
        "seconds": 0.25,
        "received_bytes": 100,
        "sent_bytes": 2000,
    }


async def test_lines_are_written_in_batches_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[str, bytes]] = []
    log = AccessLog(AccessPolicy(), write=lambda data: written.append((threading.current_thread().name, data)))
    log.note(record(request_id="a"))
    log.note(record(request_id="b\n", tenant="\udcff"))
    assert written == []
    log.close()
    ((thread, data),) = written
    assert thread == "access-log"
    assert [json.loads(one)["request_id"] for one in data.splitlines()] == ["a", "b\n"]


async def test_a_reader_that_stands_still_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log, "WAITING_LINES", 2)
    reading, written, stuck = threading.Event(), [], threading.Event()

    def write(data: bytes) -> None:
        stuck.set()
        reading.wait(10)
        written.extend(json.loads(one) for one in data.splitlines())

    log = AccessLog(AccessPolicy(), write=write)
    log.note(record(request_id="first"))
    log._flush()
    assert stuck.wait(10)
    log._batches.put(([], 0))
    for number in range(5):
        log.note(record(request_id=str(number)))
    # what was handed over is not written yet, so the rest stays
    log._flush()
    assert (len(log._waiting), log._dropped) == (2, 3)
    reading.set()
    log.close()
    assert [said.get("request_id", said) for said in written] == ["first", "0", "1", {"dropped": 3}]
