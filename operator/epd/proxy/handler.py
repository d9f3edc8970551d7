"""What a connection needs of whoever answers its requests. Interfaces only.

They are classes to inherit from and no Protocols: compiled code calls the methods of a class a good ten times faster.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from epd.proxy.errors import ProxyError
from epd.proxy.head import Head
from epd.proxy.transport import Reply


@mypyc_attr(allow_interpreted_subclasses=True)
class Turn:
    """One request in the handler's hands, from its head to the last byte of its reply."""

    __slots__ = ("deadline", "head")

    head: Head
    deadline: float
    """Of the monotonic clock, in seconds."""

    def begin(self) -> None:
        """Judge the head. Raises ProxyError."""
        raise NotImplementedError

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body. Raises ProxyError."""
        raise NotImplementedError

    async def answer(self) -> Reply:
        """Answer, once the body is whole. Raises nothing but CancelledError."""
        raise NotImplementedError

    def refuse(self, error: ProxyError) -> Reply:
        """Answer with `error`, in place of `answer`."""
        raise NotImplementedError

    def end(self, *, left: bool, broken: bool, streamed: int) -> None:
        """It is over. Called once.

        `left`: the client went before its reply was complete; `broken`: this side or the engine broke it off.
        `streamed` bytes of a stream were sent.
        """
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Handler:
    """What stands behind connections."""

    __slots__ = ("draining",)

    draining: bool
    """Whether replies shall close their connections."""

    def turn(self, head: Head) -> Turn:
        """A request has come."""
        raise NotImplementedError

    def refuse(self, error: ProxyError) -> Reply:
        """Answer what is no request."""
        raise NotImplementedError
