"""Writes requests to an engine's connection: small ones at once, large bodies in batches as the transport takes them.

Never reads an answer, and never copies more of a body than one small write takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from epd.proxy.transport import Body, Buffer

JOINED_BYTES: Final = 64 * 1024
"""Up to here head and body are copied together (5 us at most), which spares a system call; more is never copied here.
It also is how much asyncio keeps in a transport before it pauses its writer."""
BATCH_BYTES: Final = 256 * 1024
"""How much of a large body is handed to the transport at once. More than the kernel takes at a time saves nothing, and
asyncio before Python 3.12 joins what `writelines` gets."""


class RequestSender:
    """Sends one request after the other. `full` says whether the transport wants no more for now."""

    __slots__ = ("_large", "_transport", "_unsent", "full")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._large = False
        self._unsent: Iterator[list[Buffer]] | None = None
        self.full = False

    def send(self, head: bytes, body: Body, size: int) -> None:
        """Send a request whose body has `size` bytes."""
        self._large = size > JOINED_BYTES
        if self._large:
            self._unsent = _batches(head, body)
            self._write_on()
        else:
            self._transport.write(head + body if isinstance(body, bytes) else b"".join((head, *body)))

    def unsent(self) -> bool:
        """Whether part of a large body is not out yet. A small one that is not waits in the transport, in order."""
        return self._large and (self._unsent is not None or self._transport.get_write_buffer_size() > 0)

    def drop(self) -> None:
        """Send no more of it."""
        self._unsent = None

    def pause(self) -> None:
        """The transport's buffer is full."""
        self.full = True

    def resume(self) -> None:
        """It is all but empty."""
        self.full = False
        self._write_on()

    def _write_on(self) -> None:
        if self._unsent is None or self._transport.is_closing():
            return
        for batch in self._unsent:
            self._transport.writelines(batch)
            if self.full:
                return
        self._unsent = None


def _batches(head: bytes, body: Body) -> Iterator[list[Buffer]]:
    """Cut head and body into lists of views, each of BATCH_BYTES in all but for the last."""
    batch: list[Buffer] = [head]
    room = BATCH_BYTES - len(head)
    for piece in (body,) if isinstance(body, bytes) else body:
        view = memoryview(piece)
        while view:
            part = view[:room]
            view = view[len(part) :]
            batch.append(part)
            room -= len(part)
            if not room:
                yield batch
                batch, room = [], BATCH_BYTES
    if batch:
        yield batch
