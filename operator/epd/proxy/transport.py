"""What the course of a request needs from a transport. Interfaces and values only.

The implementation is exchangeable: `client.py` today.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Cause(StrEnum):
    """Why an engine gave no usable answer; a label value of metrics."""

    REFUSED = "refused"
    """No connection came about; the engine has seen nothing."""
    DISCONNECTED = "disconnected"
    """The connection broke; a kept connection that the engine had closed looks the same."""
    TIMEOUT = "timeout"
    STATUS = "status"
    STREAM_ERROR = "stream-error"


class TransportError(Exception):
    """An engine could not be reached or did not finish its answer."""

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request to an engine. `address` is the engine's base URL, `path` starts with a slash."""

    address: str
    path: str
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class Answer(Protocol):
    """An engine's answer whose head has arrived. Header names are lower case."""

    status: int
    headers: Mapping[str, str]

    async def read(self) -> bytes:
        """Read the whole body. Raises TransportError."""

    async def read_chunk(self) -> bytes:
        """Return the next bytes of the body as they come, b"" at its end. Raises TransportError."""

    def close(self) -> None:
        """Give the connection back if the body was read to its end, else break it, which aborts the engine's work."""


class Transport(Protocol):
    """Sends calls. A cancelled `send` breaks the connection."""

    async def send(self, call: Call) -> Answer:
        """Send and wait for the head of the answer. Raises TransportError."""


class ReplyStream(Protocol):
    """The body of a streamed reply."""

    async def read_chunk(self) -> bytes:
        """Return the next bytes for the client, b"" at the end. Raises TransportError."""

    def close(self) -> None:
        """Let go of everything behind the stream; safe to call more than once."""


@dataclass(slots=True, kw_only=True)
class Reply:
    """What a client gets: status, headers and either a whole body or a stream."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    stream: ReplyStream | None = None
