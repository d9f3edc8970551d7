"""How long clients may take, why so long, and the alarm that says when one has taken longer.

Never decides what then becomes of a connection.
"""

from __future__ import annotations

import time
from typing import Final

from epd.proxy.alarm import Alarm
from epd.proxy.errors import ProxyError, RequestTimeoutError, SlowRequestError

IDLE_SECONDS: Final = 75.0
"""How long a connection may be silent between requests: NGINX's default, and above the 60 s after which load balancers
in front (AWS ALB, ingress-nginx) let go of theirs, so that it is they who close."""
HEAD_SECONDS: Final = 10.0
"""How long a head may take from its first byte; it fits into a few packets."""
BODY_SECONDS: Final = 30.0
"""How long a body, or a client that does not read refusals, may stand still: a peer that has lost packets is back
before (RFC 6298 doubles from 1 s)."""
GRACE_SECONDS: Final = 1.0
"""What is left to send an answer that came at the last moment, or the refusal that the time is over."""
SWALLOW_SECONDS: Final = 5.0
"""How long the rest of a refused request's body may take."""


class Patience(Alarm):
    """One connection's. Each method begins to wait for something, and no more for what was waited for before."""

    __slots__ = ()

    def await_request(self) -> None:
        """A request is to begin."""
        self.set(time.monotonic() + IDLE_SECONDS)

    def await_head(self) -> None:
        """A head that has begun is to be whole. Called again it changes nothing: the time runs from the first byte."""
        due = time.monotonic() + HEAD_SECONDS
        if due < self.due:
            self.set(due)

    def await_body(self, deadline: float) -> None:
        """More of a body is to come, all of it by the request's deadline."""
        self.set(min(deadline, time.monotonic() + BODY_SECONDS))

    def await_reader(self) -> None:
        """A client is to read the refusals that it was sent."""
        self.set(time.monotonic() + BODY_SECONDS)

    def await_refused(self) -> None:
        """The rest of a request that was refused is to come."""
        self.set(time.monotonic() + SWALLOW_SECONDS)

    def awaits_since(self, *, begun: bool) -> float:
        """Since when it waits for a request, or for the rest of one's head that has `begun`."""
        return self.due - (HEAD_SECONDS if begun else IDLE_SECONDS)


def last_refusal_due() -> float:
    """When a refusal that begins now, and is a connection's last reply, has to be read."""
    return time.monotonic() + BODY_SECONDS


def late_head() -> ProxyError:
    """Why a request is refused whose head has not come."""
    return SlowRequestError(f"the head did not arrive within {HEAD_SECONDS:g} s")


def late_body(now: float, deadline: float) -> ProxyError:
    """Why a request is refused whose body stands still, or is not there by its deadline."""
    if now < deadline:
        return SlowRequestError(f"no byte of the body came for {BODY_SECONDS:g} s")
    return RequestTimeoutError("the body did not arrive within spec.proxy.timeouts.request")
