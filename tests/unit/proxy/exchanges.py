"""What the tests of the exchange share: engines by name, the ways in which they fail, and who was sent what."""

from __future__ import annotations

from epd.proxy.transport import Cause
from unit.proxy.engines import Bench, broken, document, member

E0, E1, D0, D1 = member("e0"), member("e1"), member("d0"), member("d1")
REFUSED, CUT = broken(Cause.REFUSED), broken(Cause.DISCONNECTED)
ILL = document({}, 500)
IN_STREAM = b'data: {"error":{"message":"no","code":500}}\n\n'


def sent_to(b: Bench) -> list[str]:
    """The prefill-side engines in the order of the calls; with a star where no media were sent."""
    calls = [(name, body["messages"][0]["content"]) for name, body in b.engines.calls if name.startswith("d")]
    return [name + "*" * any(part["type"] == "image_embeds" for part in parts) for name, parts in calls]
