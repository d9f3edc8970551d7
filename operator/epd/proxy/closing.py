"""The end of a connection behind its last reply, such that the client gets all of that.

A socket that is closed with unread bytes is reset, and with it goes what its client has not read yet. So this side only
says that nothing follows, and drops what still comes until the client closes too, within bounds of time and size.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

LINGER_LIMIT: Final = 16 << 20
"""Bytes that are dropped."""
LINGER_SECONDS: Final = 5.0
"""How long a client may take to close once it has been sent everything; NGINX's lingering_timeout."""


class Closing:
    """Ends one connection. A client that reads slowly may do so `until` a time of the monotonic clock, in seconds."""

    __slots__ = ("_left", "_transport", "_until")

    def __init__(self, transport: asyncio.Transport, *, until: float) -> None:
        self._transport = transport
        self._until = until
        self._left = LINGER_LIMIT

    @property
    def unread(self) -> bool:
        """Whether part of the reply may wait for the client to read."""
        # of the buffers of TLS not all are counted, but the client has to read them before it agrees to the end
        return self._transport.get_write_buffer_size() > 0 or not self._transport.can_write_eof()

    def begin(self, *, whole: bool, eof: bool) -> float | None:
        """Begin, and return when to `look`. `whole`: nothing of the client's is on its way; `eof`: nor will be."""
        half = self._transport.can_write_eof()
        if eof or (whole and not half):
            # TLS has no half-closed connections in asyncio, whose own `close` lets the client read all
            self._transport.close()
            return self._until if half else None
        if half:
            try:
                self._transport.write_eof()
            except OSError:
                # asyncio's own loop shuts the socket down within the call: the client has reset it
                self._transport.abort()
                return None
        return time.monotonic() + LINGER_SECONDS

    def drop(self, size: int) -> None:
        """So many bytes have come."""
        self._left -= size
        if self._left < 0:
            self._transport.abort()

    def look(self, now: float) -> float | None:
        """Return when to look again, or end it."""
        if not self._transport.can_write_eof():
            self._transport.close()
        elif self.unread and now < self._until:
            return min(now + LINGER_SECONDS, self._until)
        else:
            self._transport.abort()
        return None
