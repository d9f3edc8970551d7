"""Removes pins of readers that died. A pin goes only when its reader is known to be gone by list or by server clock."""

from __future__ import annotations

import errno
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from epd.collector.clock import Reading
from epd.collector.files import Files, directory
from epd.collector.house import House
from epd.collector.inputs import Liveness
from epd.collector.ledger import Ledger
from epd.collector.result import Cause
from epd.collector.scan import BLOCK, Scanner
from epd.connector import layout as names

SILENCE: Final = 600.0
"""Seconds without a heartbeat, which is due each minute, after which a reader is gone though its pod lives: its
container was restarted."""
SILENCE_WITHOUT_POD: Final = 180.0
"""The same for a reader whose pod is gone; three beats, since a pod that does not know its own uid made one up."""
_OVERTAKEN: Final = frozenset({errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST})
"""How rmdir and unlink say that another collector was faster, or that the reader lives after all."""


@dataclass(slots=True, kw_only=True)
class Pins:
    """Counts pins, and removes those of the dead.

    Attributes:
        used_bytes: Of files that only pins keep, after `count`.
    """

    files: Files
    house: House
    ledger: Ledger
    scanner: Scanner
    count: int = 0
    used_bytes: int = 0

    def look(self, *, reap: bool, liveness: Liveness, reading: Reading) -> None:
        """Count all pins and, if `reap`, remove those of dead readers. `liveness` must be newer than any pin seen."""
        pins = self.house.parts.get(names.PINS)
        if pins is None:
            return
        for uid in self._names(pins):
            with self._tolerant("open"), directory(self.files, uid, dir_fd=pins) as pod:
                for nonce in self._names(pod):
                    with self._tolerant("open"):
                        self._reader(uid, nonce, pod, reap=reap, liveness=liveness, reading=reading)
            if reap and liveness.valid and uid not in liveness.pods:
                self._rmdir(uid, pins)

    def _reader(self, uid: str, nonce: str, pod: int, *, reap: bool, liveness: Liveness, reading: Reading) -> None:
        with directory(self.files, nonce, dir_fd=pod) as fd:
            dead = reap and self._dead(uid, fd, liveness, reading)
            if dead:
                self._reap(fd)
            else:
                self._count(fd)
        if dead:
            self._rmdir(nonce, pod)

    def _names(self, fd: int) -> list[str]:
        with self.files.scandir(fd) as entries:
            return [entry.name for entry in entries]

    def _dead(self, uid: str, fd: int, liveness: Liveness, reading: Reading) -> bool:
        if not reading.reliable or reading.steady < SILENCE:
            return False
        try:
            beat = self.files.stat(names.HEARTBEAT, dir_fd=fd, follow_symlinks=False).st_mtime
        except FileNotFoundError:
            beat = self.files.fstat(fd).st_mtime
        silence = reading.now - beat
        return silence > SILENCE or (liveness.valid and uid not in liveness.pods and silence > SILENCE_WITHOUT_POD)

    def _count(self, fd: int) -> None:
        for name in self._names(fd):
            if name != names.HEARTBEAT:
                with self._tolerant("stat"):
                    status = self.files.stat(name, dir_fd=fd, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_dev == self.house.device:
                        self.count += 1
                        self.used_bytes += self.scanner.count_once(status)

    def _reap(self, fd: int) -> None:
        """Unlink all pins of a reader; its heartbeat last, so that what a crash leaves is still known as dead."""
        for name in sorted(self._names(fd), key=lambda name: name == names.HEARTBEAT):
            if name != names.HEARTBEAT and not name.isdecimal():
                continue
            with self._tolerant("unlink"):
                status = self.files.stat(name, dir_fd=fd, follow_symlinks=False)
                self.files.unlink(name, dir_fd=fd)
                if name != names.HEARTBEAT:
                    self.ledger.remove(Cause.PIN, status.st_blocks * BLOCK if status.st_nlink == 1 else 0)

    def _rmdir(self, name: str, dir_fd: int) -> None:
        with self._tolerant("rmdir"):
            self.files.rmdir(name, dir_fd=dir_fd)

    @contextmanager
    def _tolerant(self, call: str) -> Iterator[None]:
        """Let one pin's failure be only its own."""
        try:
            yield
        except OSError as error:
            if error.errno not in _OVERTAKEN:
                self.ledger.error(call, error)
