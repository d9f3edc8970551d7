"""The storage server's clock, read from a file that is touched. Ages are told by it alone, never by this machine's."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from epd.collector.files import Files
from epd.collector.house import House
from epd.connector import layout

_TOLERANCE: Final = 1.0
"""Seconds: time stamps of some servers have this grain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One look at the server's clock.

    Attributes:
        now: Seconds since the epoch.
        reliable: False right after it went back or jumped: nothing is told by it in this pass.
        steady: Seconds since it last did so; infinite if it never did. What was used before a jump looks older than it
            is, so nothing is removed until its users had the time to stamp it again.
        skew: How far it went beyond the monotonic clock since the last look, in seconds.
    """

    now: float
    reliable: bool
    steady: float
    skew: float


class ServerClock:
    """Reads the clock, and compares it with the monotonic one between two looks.

    Args:
        name: Of the probe file; unique among collectors and engines that run at once.
    """

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._last: tuple[float, float] | None = None
        self._jumped = float("-inf")

    def read(self, files: Files, house: House, *, min_idle: float) -> Reading:
        """Touch the probe and read its time. Raises OSError."""
        now = self._touch(files, house)
        monotonic = self._clock()
        skew, reliable = 0.0, True
        if self._last is not None:
            then, before = self._last
            skew = (now - then) - (monotonic - before)
            reliable = now >= then and abs(skew) <= max(min_idle / 2, _TOLERANCE)
        if not reliable:
            self._jumped = monotonic
        self._last = (now, monotonic)
        return Reading(now=now, reliable=reliable, steady=monotonic - self._jumped, skew=skew)

    def _touch(self, files: Files, house: House) -> float:
        probes = house.parts.get(layout.PROBE)
        if probes is not None:
            with suppress(OSError):
                return self._touch_probe(files, probes)
        # A full disk has no room for a new file. The owner's file is there, and its time says nothing else.
        files.utime(layout.OWNER, None, dir_fd=house.housekeeping, follow_symlinks=False)
        return files.stat(layout.OWNER, dir_fd=house.housekeeping, follow_symlinks=False).st_mtime

    def _touch_probe(self, files: Files, probes: int) -> float:
        try:
            files.utime(self._name, None, dir_fd=probes, follow_symlinks=False)
        except FileNotFoundError:
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            files.close(files.open(self._name, flags, layout.FILE_MODE, dir_fd=probes))
            files.utime(self._name, None, dir_fd=probes, follow_symlinks=False)
        return files.stat(self._name, dir_fd=probes, follow_symlinks=False).st_mtime
