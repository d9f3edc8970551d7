"""What a connection needs of whoever answers its requests. Interfaces only."""

from __future__ import annotations

from typing import Protocol

from epd.proxy.errors import ProxyError
from epd.proxy.head import Head
from epd.proxy.transport import Reply


class Turn(Protocol):
    """One request in the handler's hands, from its head to the last byte of its reply."""

    head: Head
    deadline: float
    """Of the monotonic clock, in seconds."""

    def begin(self) -> None:
        """Judge the head. Raises ProxyError."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body. Raises ProxyError."""

    async def answer(self) -> Reply:
        """Answer, once the body is whole. Raises nothing but CancelledError."""

    def refuse(self, error: ProxyError) -> Reply:
        """Answer with `error`, in place of `answer`."""

    def end(self, *, left: bool, broken: bool, streamed: int) -> None:
        """It is over. Called once.

        `left`: the client went before its reply was complete; `broken`: this side or the engine broke it off.
        `streamed` bytes of a stream were sent.
        """


class Handler(Protocol):
    """What stands behind connections."""

    draining: bool
    """Whether replies shall close their connections."""

    def turn(self, head: Head) -> Turn:
        """A request has come."""

    def refuse(self, error: ProxyError) -> Reply:
        """Answer what is no request."""
