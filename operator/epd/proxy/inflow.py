"""What a client has sent and nobody has taken, in bounds: beyond them its socket is not read.

Never looks at what the bytes mean.
"""

from __future__ import annotations

import asyncio
from typing import Final

READ_AHEAD: Final = 64 << 10
"""Bytes of later requests that wait while one is answered."""


class Inflow:
    """One connection's. `rest` is what has come and is not taken: part of a head, or requests that wait.

    `held` says whether the socket is not read.
    """

    __slots__ = ("_transport", "held", "rest")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.held = False
        self.rest = b""

    def keep(self, data: bytes) -> None:
        """Add what has come; read no more if that is enough."""
        self.rest += data
        if not self.has_room():
            self.hold()

    def has_room(self) -> bool:
        """Whether more may come while what is there waits."""
        return len(self.rest) <= READ_AHEAD

    def hold(self) -> None:
        """Read the socket no more."""
        if not self.held:
            self.held = True
            self._transport.pause_reading()

    def read_on(self) -> None:
        """Read it again."""
        if self.held:
            self.held = False
            self._transport.resume_reading()
