"""Judges every change that a collector makes, at the moment that it takes effect, by the truth that it cannot see.

Each judgement counts for an invariant of the collection protocol; `INVARIANTS` says them. Judges only: changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from epd.collector.inputs import Liveness, Policy
from epd.connector import layout
from histories.cluster import Cluster
from histories.memory_fs import Files
from histories.memory_tree import Inode, Volume
from histories.process import Look, Process
from histories.schedule import SECOND

INVARIANTS: Final = {
    1: "nothing outside the root is changed, whatever links, mounts and renames happen",
    2: "nothing without our record is removed; unknown names inside ours are kept",
    3: "a version that lives when it is asked for is not renamed",
    4: "without a valid answer, fresh enough, no version changes its state",
    5: "an answer that shrank to nothing removes nothing that lives",
    6: "a Managed engine whose version was renamed away sees misses and makes its directory anew",
    7: "what is pinned stays readable, with the same bytes, until it is unpinned or its reader is known as dead",
    8: "a reader gets a miss or the whole right tensor, never another, a torn one or an error",
    9: "a pin is removed by its owner, or when its pod is gone or its heartbeat silent",
    10: "an entry used within minIdle of server time is not evicted",
    11: "an entry is evicted on what was seen right before, not on what its predecessor was",
    12: "a writer ends published or with a counted failure, whatever happens to its directories",
    13: "no directory with content is removed, and none inside a version in use",
    14: "eviction begins above high and stops at low",
    15: "the oldest go first",
    16: "a crash at any call, and a restart, end where no crash ends",
    17: "two collectors do what one does, and meet no error but that something is gone",
    18: "a full disk is no hindrance to freeing space",
    19: "a dry run changes nothing but the probe",
    20: "memory does not grow with the entries",
    21: "bytes are counted once for each inode, trash included",
    22: "every dead version goes, within its grace and two passes",
}

ANSWER_AGE: Final = 300
"""Seconds; this and what follows is the protocol's, said here anew so that a wrong number in the collector shows."""
CHECK_AGE: Final = 0.05
SILENCE: Final = 600
SILENCE_WITHOUT_POD: Final = 180
TEMPORARY_AGE: Final = 3600
_SLACK: Final = SECOND
"""Between what the server's clock says and what a program makes of it: floats and the grain of time stamps."""


@dataclass
class Oracle:
    """Judgements of one history."""

    cluster: Cluster
    volume: Volume
    foreign: dict[Inode, str] = field(default_factory=dict)
    """What is not ours, from the start or since somebody put it there, and what it is."""
    ours: set[str] = field(default_factory=set)
    """Versions that have had a record of our claim."""
    example: set[str] = field(default_factory=set)
    """Those in the Example layout."""
    jumps: int = 0
    """Sum of all steps of the server's clock so far, in ns, either way."""
    lying: str = ""
    removed: dict[str, int] = field(default_factory=dict)
    """Version to when it was last renamed away."""
    reaped: set[tuple[str, str]] = field(default_factory=set)
    checks: Counter[int] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    violations: list[tuple[int, str]] = field(default_factory=list)

    def check(self, invariant: int, holds: bool, says: Callable[[], str] | str) -> None:
        """Count a judgement."""
        self.checks[invariant] += 1
        if not holds:
            text = says if isinstance(says, str) else says()
            self.violations.append((invariant, f"at {self.cluster.schedule.now / SECOND:.3f} s: {text}"))

    def witness(self, process: Process) -> Callable[[Files, str, Inode | None, str, Inode], None]:
        """Return what a collector's file system tells of it."""

        def tell(files: Files, operation: str, parent: Inode | None, name: str, inode: Inode) -> None:
            if operation == "stat":
                look = Look(
                    inode, self.cluster.schedule.now, self.volume.now(), inode.mtime, inode.nlink, process.calls
                )
                process.looks[inode] = look
                if parent is not None:
                    process.looks[parent, name] = look
            elif operation != "look":
                self._change(process, operation, parent, name, inode)

        return tell

    # Where a change happens

    def place(self, parent: Inode) -> tuple[str, ...] | None:
        """Return the names from the root to a directory; None for one that is not on the volume."""
        names: list[str] = []
        while parent is not self.volume.root:
            if parent.volume is not self.volume or parent.parent is None or not parent.nlink:
                return None
            names.append(parent.name)
            parent = parent.parent
        return tuple(reversed(names))

    def _change(self, process: Process, operation: str, parent: Inode | None, name: str, inode: Inode) -> None:
        what = f"{process.name} {operation} {name!r}"
        place = None if parent is None else self.place(parent)
        is_pin = operation == "unlink" and self._is_pin(place, inode)
        self.check(2, is_pin or inode not in self.foreign, lambda: f"{what}: {self.foreign[inode]}")
        if operation == "create":
            process.facts.setdefault("created", set()).add(inode)
        if parent is None:
            made = inode in process.facts.get("created", ())
            self.check(1, made, f"{what}: writes into a file that it did not make")
            return
        self.check(1, place is not None, lambda: f"{what}: outside of the root, in {parent.name!r}")
        if place is None:
            return
        policy: Policy = process.facts["policy"]
        if policy.dry_run:
            allowed = place == (layout.HOUSEKEEPING, layout.PROBE) or name in (layout.PROBE, layout.OWNER)
            self.check(19, allowed, f"{what} in {place} in a dry run")
        if not place:
            self._in_root(process, operation, name, inode)
        elif place[0] == layout.HOUSEKEEPING:
            self._in_housekeeping(process, operation, place[1:], parent, name, inode)
        else:
            self._in_version(process, operation, place, parent, name, inode)

    def engine_unlinks(self, process: Process, parent: Inode | None, name: str, inode: Inode) -> None:
        """Judge what an engine removes: only pins, and temporary files that it made itself, wherever they are now.

        Whoever moves a directory away while an engine writes in it moves the engine's temporary file too. That stays
        the engine's to remove, through a link that was put in the directory's place, and nobody else's.
        """
        if name.startswith(layout.TEMPORARY_PREFIX) and inode in process.facts.get("created", ()):
            self.foreign.pop(inode, None)
        is_pin = parent is not None and self._is_pin(self.place(parent), inode)
        holds = is_pin or inode not in self.foreign
        self.check(2, holds, lambda: f"{process.name} unlinks {name!r}: {self.foreign[inode]}")

    @staticmethod
    def _is_pin(place: tuple[str, ...] | None, inode: Inode) -> bool:
        return inode.nlink > 1 and (place or ())[:2] == (layout.HOUSEKEEPING, layout.PINS)

    def _in_root(self, process: Process, operation: str, name: str, inode: Inode) -> None:
        if name == layout.HOUSEKEEPING and operation in ("mkdir", "utime"):
            return
        self.check(1, operation == "rename" and inode.is_directory, f"{process.name} {operation} {name!r} in the root")
        self._renames(process, name)

    def _in_housekeeping(
        self, process: Process, operation: str, place: tuple[str, ...], parent: Inode, name: str, inode: Inode
    ) -> None:
        part = place[0] if place else ""
        if part == layout.CONDEMNED and operation in ("create", "renamed"):
            self._condemns(process, name)
        elif part == layout.VERSIONS and operation in ("unlink", "replace") and not name.startswith("."):
            torn = operation == "unlink" and inode in process.facts.get("created", ())  # where there are no hard links
            self.check(2, torn, f"{process.name} removes the record {name}")
        elif part == layout.PINS and operation == "unlink" and len(place) == 3 and name != layout.HEARTBEAT:
            self._reaps(process, place, parent, name)
        elif part == layout.VERSIONS and operation in ("link", "create") and name.endswith(".json"):
            self.ours.add(name.removesuffix(".json"))
        elif operation == "rmdir":
            self.check(13, not inode.children, f"{process.name} removes {name!r} with {list(inode.children or ())}")
        elif operation == "unlink" and name == layout.OWNER:
            torn = inode in process.facts.get("created", ())
            self.check(2, torn, f"{process.name} removes the owner")

    # Versions

    def _answer(self, process: Process) -> tuple[int, int, Liveness, str]:
        answer: tuple[int, int, Liveness, str] = process.facts["answer"]
        return answer

    def _condemns(self, process: Process, version: str) -> None:
        start, end, answer, lying = self._answer(process)
        what = f"{process.name} condemns {version}"
        self.check(4, answer.valid and version not in answer.live, f"{what} without an answer that says so")
        self.check(2, version in self.ours, f"{what}, which has no record of ours")
        self.check(5, lying != "empty", f"{what} on an empty answer")
        if not lying:
            self.check(3, not self.cluster.lived_throughout(version, start, end), f"{what}, which lives")
        self.events["condemned"] += 1

    def _renames(self, process: Process, version: str) -> None:
        what = f"{process.name} renames {version}"
        policy: Policy = process.facts["policy"]
        start, end, answer, lying = self._answer(process)
        lives = self.cluster.lived_throughout(version, start, end)
        self.check(5 if lying == "empty" else 3, not lives or lying == "partial", f"{what}, which lives")
        fresh = process.entered - start <= (ANSWER_AGE + 1) * SECOND
        self.check(4, answer.valid and fresh and version not in answer.live, f"{what} on {answer}, fresh: {fresh}")
        self.check(4, policy.enabled and not policy.dry_run, f"{what} although the policy forbids it")
        self.check(2, version in self.ours, f"{what}, which has no record of ours")
        if version not in answer.expedited:
            self._graced(process, version, policy, end, what)
        self.removed[version] = self.cluster.schedule.now
        self.events["renamed"] += 1
        if self.cluster.lived_throughout(version, self.cluster.schedule.now, self.cluster.schedule.now):
            self.events["renamed although it came back after the last question"] += 1

    def _graced(self, process: Process, version: str, policy: Policy, end: int, what: str) -> None:
        condemned = self._housekeeping(layout.CONDEMNED)
        look = process.looks.get((condemned, version))
        if look is None or look.at < end:
            self.check(3, False, f"{what} without a look at its mark after the last question")
            return
        aged = look.server - look.mtime + self.jumps + _SLACK
        self.check(3, aged >= policy.version_grace * SECOND, f"{what}, condemned for {aged / SECOND:.0f} s only")

    def _housekeeping(self, part: str) -> Inode | None:
        house = (self.volume.root.children or {}).get(layout.HOUSEKEEPING)
        return (house.children or {}).get(part) if house else None

    # Entries

    def _in_version(
        self, process: Process, operation: str, place: tuple[str, ...], parent: Inode, name: str, inode: Inode
    ) -> None:
        version, what = place[0], f"{process.name} {operation} {'/'.join(place)}/{name}"
        self.check(2, version in self.ours, f"{what}: no version of ours")
        self.check(13, operation != "rmdir", f"{what}: a directory of a version in use")
        if operation == "rmdir":
            return
        self.check(2, operation == "unlink" and len(place) == 2, f"{what}: neither an entry nor a temporary file")
        look = process.looks.get((parent, name))
        right_before = look is not None and look.call >= process.calls - 1
        self.check(11, right_before, f"{what} without a look right before")
        if look is None:
            return
        if name.startswith(layout.TEMPORARY_PREFIX):
            old = look.server - look.mtime + self.jumps + _SLACK >= TEMPORARY_AGE * SECOND
            self.check(12, old, f"{what}: perhaps still written")
            self.events["temporary removed"] += 1
        else:
            self._evicts(process, version, name, look, what)

    def _evicts(self, process: Process, version: str, name: str, look: Look, what: str) -> None:
        policy: Policy = process.facts["policy"]
        known = name == layout.EXAMPLE_ENTRY or layout.ENTRY_PATTERN.fullmatch(name) is not None
        self.check(2, known, f"{what}: a name that no connector writes")
        self.check(4, policy.enabled and not policy.dry_run, f"{what} although the policy forbids it")
        self.check(2, version not in self.example or policy.evict_example, f"{what}: entries of this layout stay")
        slow = process.entered - look.at > CHECK_AGE * SECOND + _SLACK // 10
        self.check(11, not slow, f"{what} on a look that is {(process.entered - look.at) / SECOND:.3f} s old")
        self.check(7, look.nlink == 1, f"{what}, which is pinned")
        idle = look.server - look.mtime + self.jumps + _SLACK
        self.check(10, idle >= policy.min_idle * SECOND, f"{what}, unused for {idle / SECOND:.0f} s only")
        self.events["evicted"] += 1

    # Pins

    def _reaps(self, process: Process, place: tuple[str, ...], parent: Inode, name: str) -> None:
        uid, what = place[1], f"{process.name} removes the pin {'/'.join(place[1:])}/{name}"
        looks = [process.looks.get(key) for key in ((parent, layout.HEARTBEAT), parent)]
        look = max((look for look in looks if look is not None), key=lambda look: look.call, default=None)
        if look is None:
            self.check(9, False, f"{what} without a look at its heartbeat")
            return
        first: Liveness = process.facts["answers"][0]  # pins are looked for after it
        silence = look.server - look.mtime + self.jumps + _SLACK
        absent = first.valid and uid not in first.pods and silence >= SILENCE_WITHOUT_POD * SECOND
        self.check(9, absent or silence >= SILENCE * SECOND, f"{what}: pod absent {absent}, silence {silence / SECOND}")
        self.reaped.add((parent.name, name))
        self.events["pin reaped"] += 1
