"""Hard links that keep entries readable while a worker on another node loads them. Deletes only links of its own.

Made lazily: an engine that copies entries into local memory never has a pin directory. The collector spares a file with
more than one link, and removes a pin directory whose heartbeat stopped.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from . import layout
from .entry import Parsed
from .records import make_directory, set_mode
from .seam import Files

_HEARTBEAT_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class Pin:
    """A link to a verified entry, readable until it is unpinned."""

    path: str
    parsed: Parsed


class Pins:
    """This engine's pin directory, `pins/<pod uid>/<nonce>`. Thread-safe."""

    def __init__(self, root: str, pod: str, *, files: Files, nonce: Callable[[], str]) -> None:
        self._files = files
        housekeeping = f"{root}/{layout.HOUSEKEEPING}"
        pins = f"{housekeeping}/{layout.PINS}"
        own = f"{pins}/{pod}"
        self._directory = f"{own}/{nonce()}"
        self._levels = (housekeeping, pins, own, self._directory)
        self._lock = threading.Lock()
        self._count = 0
        self._held = set[str]()
        self._made = False

    def link(self, path: str) -> str:
        """Return a new link to the file at `path`. Raises OSError, FileNotFoundError if there is no such file."""
        try:
            return self._link(path)
        except FileNotFoundError:
            if not self._lost():
                raise
        return self._link(path)

    def unlink(self, path: str) -> None:
        """Remove a link of this engine; one that is gone, or that cannot be removed, is left to the collector."""
        with self._lock:
            self._held.discard(path)
        with suppress(OSError):
            self._files.unlink(path)

    def heartbeat(self) -> None:
        """Say that this engine lives; nothing to do without pins. Raises OSError."""
        with self._lock:
            if self._made:
                try:
                    self._beat()
                except FileNotFoundError:  # taken for dead: whoever still needs a pin finds it gone
                    self._made = False

    def close(self) -> None:
        """Remove all links and the directory."""
        with self._lock:
            held, self._held, made = sorted(self._held), set[str](), self._made
            self._made = False
        for path in held:
            with suppress(OSError):
                self._files.unlink(path)
        if made:
            with suppress(OSError):
                self._files.unlink(f"{self._directory}/{layout.HEARTBEAT}")
            with suppress(OSError):
                self._files.rmdir(self._directory)
                self._files.rmdir(self._levels[-2])

    def _link(self, path: str) -> str:
        with self._lock:
            self._make()
            self._count += 1
            target = f"{self._directory}/{self._count}"
            self._files.link(path, target)
            self._held.add(target)
        return target

    def _lost(self) -> bool:
        """Tell whether a collector took this engine for dead and removed the directory; then it is made again."""
        try:
            self._files.stat(self._directory, follow_symlinks=False)
        except FileNotFoundError:
            with self._lock:
                self._made = False
            return True
        return False

    def _make(self) -> None:
        if self._made:
            return
        for level in self._levels:
            make_directory(self._files, level)
        self._beat()
        self._made = True

    def _beat(self) -> None:
        path = f"{self._directory}/{layout.HEARTBEAT}"
        try:
            self._files.utime(path, None, follow_symlinks=False)
        except FileNotFoundError:
            fd = self._files.open(path, _HEARTBEAT_FLAGS, layout.FILE_MODE)
            try:
                set_mode(self._files, fd, layout.FILE_MODE)
            finally:
                self._files.close(fd)
