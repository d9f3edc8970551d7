"""Cross-origin requests of browsers (WHATWG Fetch section 3.2): who may read answers, and the preflight.

Pure. By default no origin may, and OPTIONS is a method like any other that routes don't have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from epd.proxy.transport import Reply

ANY: Final = "*"
MAX_AGE_SECONDS: Final = 600
"""How long browsers may keep a preflight; Chromium keeps none longer than 2 h, and a change shall show sooner."""
EXPOSED: Final = (
    "x-request-id, x-epd-encode, x-epd-encoders, x-epd-items, x-epd-model-version, x-epd-prefill, x-epd-decode, "
    "retry-after"
)


@dataclass(frozen=True, slots=True)
class Cors:
    """`origins` are those that may read answers, such as `https://chat.example.com`; `*` is any."""

    origins: frozenset[str] = frozenset()

    def headers(self, request: Mapping[str, str]) -> dict[str, str]:
        """What an answer to a request with these headers has in addition."""
        origin = request.get("origin")
        if not self.origins or origin is None:
            return {}
        if ANY in self.origins:
            return {"access-control-allow-origin": ANY, "access-control-expose-headers": EXPOSED}
        if origin not in self.origins:
            return {"vary": "origin"}
        return {
            "access-control-allow-origin": origin,
            "access-control-expose-headers": EXPOSED,
            "vary": "origin",
        }

    def preflight(self, request: Mapping[str, str]) -> Reply | None:
        """The answer to OPTIONS where the method that is asked for may be used; None if it is no preflight, or of an
        origin that may not."""
        headers = self.headers(request)
        method = request.get("access-control-request-method")
        if "access-control-allow-origin" not in headers or method is None:
            return None
        del headers["access-control-expose-headers"]
        headers["access-control-allow-methods"] = method
        # whatever is asked for: what engines may not see is not passed on, whoever sends it
        headers["access-control-allow-headers"] = request.get("access-control-request-headers", "")
        headers["access-control-max-age"] = str(MAX_AGE_SECONDS)
        return Reply(status=204, headers=headers)
