"""What the course of a request needs from a transport. Interfaces and values only.

Bytes move by callbacks: whoever has a body pushes it into a `Sink`, and the sink pauses it. The implementation is
exchangeable; `pool.py` is the one in use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Protocol

from mypy_extensions import mypyc_attr

Buffer = bytes | bytearray | memoryview
Body = bytes | tuple[Buffer, ...]
"""A whole body, in pieces where joining them would copy media."""

NONE: Final[Mapping[str, str]] = MappingProxyType({})
"""No headers."""


class Cause(StrEnum):
    """Why an engine gave no usable answer; a label value of metrics."""

    REFUSED = "refused"
    """No connection came about; the engine has seen nothing."""
    DISCONNECTED = "disconnected"
    """The connection broke before the answer was complete."""
    PROTOCOL = "protocol"
    """What came is no HTTP/1.1 answer, or has no end within reason."""
    TIMEOUT = "timeout"
    STATUS = "status"
    STREAM_ERROR = "stream-error"
    LOCAL = "local"
    """This process had no descriptor, port or memory for a connection; that says nothing of the engine."""


class TransportError(Exception):
    """An engine could not be reached or did not finish its answer."""

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause


# here and wherever else each request makes one: `__init__` is written out because the one that a dataclass gets is not
# compiled, and nothing is frozen because each attribute would then be set by a call
@dataclass(slots=True, init=False, eq=False)
class Call:
    """One request to an engine. `path` starts with a slash and may have a query.

    `address` is the engine's base URL: `http://host:port`, `https://host:port`, or `unix:/path/of/socket`. A transport
    only reads a call.
    """

    address: str
    path: str
    method: str
    headers: Mapping[str, str]
    body: Body

    def __init__(
        self, *, address: str, path: str, method: str = "POST", headers: Mapping[str, str] = NONE, body: Body = b""
    ) -> None:
        self.address = address
        self.path = path
        self.method = method
        self.headers = headers
        self.body = body


TakeChunk = Callable[[bytes, int], None]
"""Takes one whole chunk of HTTP/1.1, size and line ends included, and where in it the content begins."""


class Sink(Protocol):
    """Gets a body by callbacks: any number of `write`, then one `end` or one `fail`. None of them may raise.

    One that sends chunks on may have a `write_chunk` (TakeChunk), by which it gets what comes as one, as it is.
    """

    def write(self, data: bytes) -> None:
        """Take the next bytes, which are never empty."""

    def end(self) -> None:
        """The body is complete."""

    def fail(self, error: TransportError) -> None:
        """The body broke off: the sink must not make it look complete."""


# a class to inherit from and no Protocol, as is Transport: compiled code calls the methods of a class a good ten times
# faster
@mypyc_attr(allow_interpreted_subclasses=True)
class Answer:
    """An engine's answer whose head has arrived. Header names are lower case.

    The body is either read or relayed. Until one of them is asked for, a bounded part of it waits in memory.
    """

    __slots__ = ("headers", "status")
    status: int
    headers: dict[str, str]

    async def read(self) -> bytes:
        """Read the whole body. Raises TransportError."""
        raise NotImplementedError

    def relay(self, sink: Sink) -> None:
        """Push what has come and all that comes into `sink`, beginning within this call.

        Another call hands over to another sink, which gets only what comes from then on, and the end in any case.
        """
        raise NotImplementedError

    def pause(self) -> None:
        """Read no more from the engine for now; what one read brought may still be pushed."""
        raise NotImplementedError

    def resume(self) -> None:
        """Read on."""
        raise NotImplementedError

    def close(self) -> None:
        """Break the connection unless the answer is complete, which aborts the engine's work. No sink hears of it."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class Transport:
    """Sends calls. A cancelled `send` breaks the connection."""

    __slots__ = ()

    async def send(self, call: Call) -> Answer:
        """Send and wait for the head of the answer. Raises TransportError."""
        raise NotImplementedError


class ReplyStream(Protocol):
    """The body of a streamed reply, as the data port drives it."""

    def relay(self, sink: Sink) -> None:
        """Push the body into `sink`, beginning within this call. Called once."""

    def pause(self) -> None:
        """Push no more for now, but for what is on its way."""

    def resume(self) -> None:
        """Push on."""

    def close(self) -> None:
        """Let go of everything behind the stream, whether it has ended or not; safe to call more than once."""


@dataclass(slots=True, init=False)
class Reply:
    """What a client gets: status, headers and either a whole body or a stream."""

    status: int
    headers: dict[str, str]
    body: bytes
    stream: ReplyStream | None

    def __init__(
        self, *, status: int, headers: dict[str, str], body: bytes = b"", stream: ReplyStream | None = None
    ) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.stream = stream
