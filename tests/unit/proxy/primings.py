"""What the tests of encoding share: the work under test, its orders, and what came of them."""

from __future__ import annotations

from epd.proxy.arrival import Arrival
from epd.proxy.connectors import SHARING, Connector
from epd.proxy.encoding import PRIMERS_AT_ONCE, Encoding
from epd.proxy.health import Health
from epd.proxy.hints import Hints
from epd.proxy.primers import Encoded, EncodeFailure, EncodeOrder
from epd.proxy.rotation import Rotation
from unit.proxy.engines import Bench, asking, member

E0, E1, E2 = member("e0"), member("e1"), member("e2")


def encoding(
    b: Bench,
    seconds: float = 60,
    connector: Connector = Connector.EXAMPLE,
    hints: Hints | None = None,
    now: list[float] | None = None,
) -> Encoding:
    health = Health(b.members, on_ejected=b.metrics.ejected, clock=lambda: now[0] if now else 1000.0)
    return Encoding(
        transport=b.engines,
        rotation=Rotation(members=b.members, load=b.load, health=health, bound=0),
        metrics=b.metrics,
        attempt_seconds=seconds,
        sharing=SHARING[connector],
        hints=Hints(seconds=0) if hints is None else hints,
    )


def order(request: Arrival, pairing: str = "p") -> EncodeOrder:
    return EncodeOrder(
        request=request.request, pairing=pairing, request_id="r", headers=request.headers, trail=request.trail
    )


def sounds(*names: str) -> Arrival:
    """A request with sounds, which have a primer each."""
    return asking([{"type": "input_audio", "input_audio": {"data": name, "format": "wav"}} for name in names])


MANY = [f"A{number:03}" for number in range(3 * PRIMERS_AT_ONCE)]


def named(result: Encoded | EncodeFailure) -> list[str]:
    assert isinstance(result, Encoded)
    return [item.identifier for item in result.reported.values()]


def uuids(b: Bench) -> list[list[str]]:
    return [[part["uuid"] for part in body["messages"][0]["content"]] for _, body in b.engines.calls]
