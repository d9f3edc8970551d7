"""One primer: what an encoder is asked, what its answer gives, and who is asked next."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from epd.proxy.connectors import SHARING, Connector
from epd.proxy.course import Course
from epd.proxy.health import Health
from epd.proxy.primers import Encoded, EncodeFailure, EncodeOrder, Primer, Primers
from epd.proxy.rewrite import Reported
from epd.proxy.rotation import Rotation
from epd.proxy.transport import Call, Cause
from unit.proxy.engines import HANG, Bench, Scripted, arrival, bench, broken, document, member

E0, E1 = member("e0"), member("e1")


def primers(b: Bench, connector: Connector = Connector.EXAMPLE, seconds: float = 60) -> Primers:
    rotation = Rotation(members=b.members, load=b.load, health=Health(b.members, on_ejected=b.metrics.ejected), bound=0)
    return Primers(
        transport=b.engines,
        rotation=rotation,
        metrics=b.metrics,
        attempt_seconds=seconds,
        sharing=SHARING[connector],
    )


def primer(b: Bench, *payloads: str) -> Primer:
    """A primer for the first encoder, with its load counted."""
    request = arrival(*payloads, headers={"traceparent": "t"})
    order = EncodeOrder(
        request=request.request, pairing="p", request_id="r", headers=request.headers, trail=request.trail
    )
    b.load.begin("e0", len(payloads))
    return Primer(order, order.request.items, E0, "r-e0")


async def primed(ours: Primers, sent: Primer) -> Encoded | EncodeFailure | None:
    """The result, with the primer on a course of its own."""
    over: asyncio.Future[Encoded | EncodeFailure | None] = asyncio.get_running_loop().create_future()
    course = Course(ours.prime(sent), lambda result, error: over.set_result(result))
    sent.cancel = course.cancel
    course.begin()
    return await over


async def test_each_item_has_what_was_reported_of_it() -> None:
    b = bench(E0)
    sent = primer(b, "AAAA", "BBBB")
    entry = {sent.items[n].key: {"item_indices": [n], "metadata": {"n": [n]}} for n in (1, 0)}
    b.engines.scripts["e0"] = [document({"ec_transfer_params": entry})]
    reported = {sent.items[n].key: Reported(identifier=sent.items[n].key, metadata={"n": [n]}) for n in (0, 1)}
    assert await primed(primers(b), sent) == Encoded(encoder="e0", reported=reported)
    # load is taken and given back by who made the primer
    assert b.load.counts() == {"e0": 2}


@pytest.mark.parametrize(("connector", "announced"), [(Connector.EXAMPLE, False), (Connector.HOST_MEMORY, True)])
async def test_only_what_is_to_be_passed_on_is_kept(connector: Connector, announced: bool) -> None:
    b = bench(E0)
    said: dict[str, Any] = {"k": {"peer": "10.0.0.1"}}
    b.engines.scripts["e0"] = [document({"ec_transfer_params": said})]
    result = await primed(primers(b, connector), primer(b, "AAAA"))
    assert isinstance(result, Encoded)
    assert result.announced == (said if announced else {})


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        (broken(Cause.REFUSED), "refused"),
        (HANG, "timeout"),
        (document({}, 500), "status"),
        (document({}, 400), "status"),
    ],
)
async def test_the_other_encoder_gets_what_the_first_failed_on_and_its_load(
    fault: object, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = bench(E0, E1, scripts={"e0": [fault]})
    heard: list[Call] = []
    send = b.engines.send

    async def listen(call: Call) -> Scripted:
        heard.append(call)
        return await send(call)

    monkeypatch.setattr(b.engines, "send", listen)
    sent = primer(b, "AAAA", "BBBB")
    result = await primed(primers(b, seconds=0.02), sent)
    assert isinstance(result, Encoded)
    assert (result.encoder, sent.encoder, b.load.counts()) == ("e1", E1, {"e1": 2})
    assert b.value("epd_proxy_retries_total", role="encode", cause=cause) == 1
    assert b.value("epd_proxy_encodes_total", role="encode", result="retried") == 2
    common = {"traceparent": "t", "content-type": "application/json"}
    assert [call.headers for call in heard] == [common | {"x-request-id": name} for name in ("r-e0", "r-e0-r")]


async def test_the_last_failure_is_told_where_nobody_else_is_left() -> None:
    b = bench(E0, scripts={"e0": [document({"error": 1}, 400)]})
    result = await primed(primers(b), primer(b, "AAAA"))
    assert isinstance(result, EncodeFailure)
    assert (result.reason, result.status, result.body) == ("status", 400, b'{"error": 1}')
    assert b.value("epd_proxy_encodes_total", role="encode", result="failed") == 1
