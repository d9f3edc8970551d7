"""How much memory the bodies of all requests may take together, so that many large ones end in 429 and not in the
kernel's OOM killer, which would take every request with it.

Counts; reads no body by itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from epd.proxy.errors import OverloadedError

CGROUP: Final = Path("/sys/fs/cgroup/memory.max")
"""The container's memory limit in bytes (cgroup v2), or the word `max`."""
COPIES: Final = 4
"""A body exists up to three times while it is sent: as it came or was written anew, and in the buffers of an encoder's
and of a prefill-side engine's socket. The fourth share is for everything else in the process, among it the one document
that is parsed at a time."""


def room_for_bodies(memory_max: Path = CGROUP) -> int | None:
    """Bytes that bodies may have together under the container's memory limit; None without a limit."""
    try:
        return int(memory_max.read_text()) // COPIES
    except (OSError, ValueError):
        return None


class Share:
    """What one body takes of the room, until it is released. `size` is in bytes."""

    __slots__ = ("_bodies", "size")

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.size = 0

    def grow(self, size: int) -> None:
        """Take `size` bytes in all. Raises OverloadedError if the others leave too little; a lone body always fits."""
        self.check(size)
        self._bodies.taken += size - self.size
        self.size = size

    def check(self, size: int) -> None:
        """Raise OverloadedError if `size` bytes could not be taken now."""
        others = self._bodies.taken - self.size
        if self._bodies.room is not None and others and others + size > self._bodies.room:
            raise OverloadedError(
                "the bodies of the requests in flight fill the memory that the proxy has for them "
                "(spec.proxy.resources.limits.memory)"
            )

    def release(self) -> None:
        """Give everything back; safe to call more than once."""
        self._bodies.taken -= self.size
        self.size = 0


class Bodies:
    """The bodies in flight: `taken` of `room` bytes (None: no bound)."""

    def __init__(self, *, room: int | None) -> None:
        self.room = room
        self.taken = 0

    def share(self) -> Share:
        """A body's share, which has nothing at first."""
        return Share(self)
