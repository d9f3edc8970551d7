"""One life of a container: its files, its clocks, its faults. Every file call is where it may pause, fail or end."""

from __future__ import annotations

import errno
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from histories.memory_fs import Files
from histories.memory_open import Gate, Witness
from histories.memory_tree import Inode, fail
from histories.schedule import SECOND, Actor, Killed, Schedule

Site = tuple[str, str, str]
"""Module, function and call: where a program calls the file system."""

ERRORS: dict[str, tuple[int, ...]] = {
    "open": (errno.EIO, errno.EACCES, errno.ESTALE, errno.ENOSPC, errno.EMFILE),
    "open_directory": (errno.EIO, errno.EACCES, errno.ESTALE),
    "close": (errno.EIO, errno.ENOSPC, errno.EDQUOT),
    "write": (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS),
    "pwrite": (errno.ENOSPC, errno.EDQUOT, errno.EIO),
    "mkdir": (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO),
    "link": (errno.ENOSPC, errno.EDQUOT, errno.EMLINK, errno.EPERM, errno.EIO),
    "rename": (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EIO, errno.EXDEV),
    "utime": (errno.EACCES, errno.EROFS, errno.EIO),
    "unlink": (errno.EACCES, errno.EIO, errno.EROFS),
    "rmdir": (errno.EBUSY, errno.EACCES, errno.EIO),
}
"""What may fail how. Calls not listed: as a stale handle or a broken disk has it."""


HANG = (50.0, 1500.0)
"""Seconds: below and above every limit that the protocol sets to the age of what was seen."""


@dataclass(frozen=True, kw_only=True)
class Habits:
    """How the calls of one process go. Chances are per call; times in seconds."""

    quick: float = 2e-3
    pause_chance: float = 0.0
    pause: tuple[float, float] = (1.0, 60.0)
    error_chance: float = 0.0
    crash_after: int = 0
    """The call at which it crashes; 0: it does not."""
    crash_site: Site | None = None
    hang_site: Site | None = None
    """Where each call takes as long as `HANG`, as on a file server that has its trouble with one kind of call."""


@dataclass
class Look:
    """When a process last looked at an inode, and what it saw."""

    inode: Inode
    at: int
    server: int
    mtime: int
    nlink: int
    call: int


@dataclass(eq=False)
class Process:
    """A program's life. `kind` is what the witness goes by."""

    schedule: Schedule
    kind: str
    name: str
    root: Inode
    habits: Habits
    witness: Witness | None = None
    crashed: Callable[[Site | None], None] = lambda site: None
    actor: Actor | None = None
    offset: float = 0.0
    calls: int = 0
    entered: int = 0
    """When the present call was made."""
    ended: bool = False
    looks: dict[tuple[Inode | None, str] | Inode, Look] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        gate: Gate = self._gate
        self.files = Files(self.root, gate=gate, witness=self.witness)
        self.rng = random.Random(self.schedule.rng.getrandbits(64))
        self._nonces = 0
        self._stopped = 0.0
        self._id = f"{self.rng.getrandbits(48):012x}"

    def clock(self) -> float:
        """Monotonic seconds, from this process's own zero."""
        self._resume()
        return self.schedule.now / SECOND + self.offset

    def _resume(self) -> None:
        """Be away for as long as the process was stopped after its last call."""
        if self._stopped:
            seconds, self._stopped = self._stopped, 0.0
            self.schedule.wait(seconds)

    def sleep(self, seconds: float) -> None:
        self.schedule.wait(seconds)

    def nonce(self) -> str:
        self._nonces += 1
        return f"{self._id}{self._nonces:04x}"

    def end(self) -> None:
        """Nothing that this process does from now on has an effect."""
        self.ended = True
        self.files.die()

    def _gate(self, operation: str, target: object, inode: Inode | None) -> None:
        if self.ended:
            raise Killed
        self._resume()
        self.calls += 1
        self.entered = self.schedule.now
        habits, rng = self.habits, self.rng
        site = self._site(operation) if habits.crash_site or habits.hang_site else None
        if habits.crash_after == self.calls or (site is not None and site == habits.crash_site):
            self._crash(operation, target)
        drawn = rng.random()
        if site is not None and site == habits.hang_site:
            self._stopped = self.schedule.log_uniform(*HANG)  # after the call; in it is what pauses do
        if drawn < habits.pause_chance / 2:
            self._stopped = self.schedule.log_uniform(*habits.pause)  # between this call and what follows it
        elif drawn < habits.pause_chance:
            self.schedule.wait(self.schedule.log_uniform(*habits.pause))  # in the call
        else:
            self.schedule.wait(drawn * habits.quick)
        if self.ended:
            raise Killed
        if habits.error_chance and rng.random() < habits.error_chance:
            raise fail(rng.choice(ERRORS.get(operation, (errno.EIO, errno.ESTALE))))

    def _crash(self, operation: str, target: object) -> None:
        """End in the middle of a call: of a write, a part gets to the disk."""
        if operation in ("write", "pwrite") and isinstance(target, tuple):
            fd, data, offset = target
            self.files.tear(fd, bytes(data[: self.rng.randrange(len(data) + 1)]), offset)
        self.crashed(self._site(operation))
        self.end()
        if self.actor is not None:
            self.schedule.kill(self.actor)
        raise Killed

    @staticmethod
    def _site(operation: str) -> Site:
        """Return where the program is that makes the call."""
        frame: Any = sys._getframe(1)
        while "/histories/" in frame.f_code.co_filename:
            frame = frame.f_back
            if frame is None:
                return "", "", operation
        code = frame.f_code
        return code.co_filename.rpartition("/epd/")[2], code.co_qualname.partition(".<locals>")[0], operation
