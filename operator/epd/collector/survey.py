"""Everything that lies on the root, counted: the state that a pass decides eviction by, and that the report tells."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from epd.collector.files import directory
from epd.collector.foreign import Foreign
from epd.collector.histogram import Histogram
from epd.collector.house import House
from epd.collector.inputs import Policy
from epd.collector.scan import Scanner, Tally, is_elsewhere
from epd.collector.trash import version_of
from epd.collector.watermark import Ours
from epd.connector import layout as names


@dataclass(slots=True, kw_only=True)
class Survey:
    """What was counted, kept up to date with what is removed later.

    Attributes:
        taken: By the monotonic clock, in seconds.
        key: What the histograms were made for; they say nothing once it changed.
        everything: Entries of all versions that may be evicted from.
        groups: The same of the versions of each of the policy's `max_sizes`.
    """

    taken: float
    key: object
    everything: Histogram
    groups: list[tuple[frozenset[str], Histogram]]
    versions: dict[str, Tally] = field(default_factory=dict)
    trash: dict[str, Tally] = field(default_factory=dict)
    trash_since: dict[str, float] = field(default_factory=dict)
    foreign_entries: int = 0
    foreign_bytes: int = 0
    pinned_bytes: int = 0
    """Of files that only pins keep."""
    pins: int = 0
    scanned: int = 0
    seconds: float = 0.0

    @property
    def ours(self) -> Ours:
        """Sums of everything that is ours; each inode once."""
        tallies = (*self.versions.values(), *self.trash.values())
        return Ours(
            used_bytes=sum(tally.used_bytes for tally in tallies) + self.pinned_bytes,
            entries=sum(tally.entries + tally.temporaries for tally in tallies),
            trash_bytes=sum(tally.used_bytes for tally in self.trash.values()),
            trash_entries=sum(tally.entries for tally in self.trash.values()),
        )

    @property
    def complete(self) -> bool:
        """Whether everything could be looked at."""
        return all(tally.complete for tally in (*self.versions.values(), *self.trash.values()))

    @property
    def used_by_version(self) -> Mapping[str, int]:
        """Bytes of each version."""
        return {version: tally.used_bytes for version, tally in self.versions.items()}

    def gone(self, version: str, stamp: float, used_bytes: int) -> None:
        """Take note of an evicted entry."""
        tally = self.versions[version]
        # an entry that was put back with its old time was not counted
        tally.entries = max(0, tally.entries - 1)
        tally.used_bytes = max(0, tally.used_bytes - used_bytes)
        self.everything.subtract(stamp, used_bytes)
        for versions, histogram in self.groups:
            if version in versions:
                histogram.subtract(stamp, used_bytes)


def take(
    scanner: Scanner, house: House, ours: Collection[str], policy: Policy, *, now: float, monotonic: float
) -> Survey:
    """Count all versions of ours and the trash. `now` is the server's time. Raises OSError of the root itself."""
    survey = Survey(
        taken=monotonic,
        key=key(ours, policy),
        everything=Histogram(now),
        groups=[(versions, Histogram(now)) for versions, _ in policy.max_sizes],
    )
    kept = Histogram(now)  # no cut-off may count on what is not evicted
    for version in sorted(ours):
        histogram = Histogram(now)
        tally = _scan(scanner, version, house.root, histogram, histogram if policy.evict_example else kept)
        if tally is None:
            continue
        survey.versions[version] = tally
        survey.everything.merge(histogram)
        for versions, group in survey.groups:
            if version in versions:
                group.merge(histogram)
    _count_trash(survey, scanner, house, kept)
    _count_foreign(survey, scanner, house, ours)
    tallies = (*survey.versions.values(), *survey.trash.values())
    survey.scanned = sum(tally.entries for tally in tallies)
    return survey


def key(ours: Iterable[str], policy: Policy) -> object:
    """Return what a survey is made for."""
    return tuple(sorted(ours)), policy.max_sizes, policy.evict_example


def _scan(scanner: Scanner, name: str, dir_fd: int, managed: Histogram, example: Histogram) -> Tally | None:
    """Count a version; None if it is not there. One that cannot be read is: it must not be told to be gone."""
    try:
        with directory(scanner.files, name, dir_fd=dir_fd) as fd:
            return scanner.scan(fd, managed, example)
    except FileNotFoundError:
        return None
    except OSError as error:
        if not is_elsewhere(error):
            scanner.ledger.error("open", error)
            return Tally(complete=False)
        return None


def _count_trash(survey: Survey, scanner: Scanner, house: House, unused: Histogram) -> None:
    trash = house.parts.get(names.TRASH)
    if trash is None:
        return
    for name in _names(scanner, trash):
        if version_of(name) is None or (tally := _scan(scanner, name, trash, unused, unused)) is None:
            continue
        survey.trash[name] = tally
        with suppress(OSError):  # rename(2) sets it; a sub-directory that goes sets it again, so it tells of stagnation
            survey.trash_since[name] = scanner.files.stat(name, dir_fd=trash, follow_symlinks=False).st_ctime


def _count_foreign(survey: Survey, scanner: Scanner, house: House, ours: Iterable[str]) -> None:
    foreign = Foreign(files=scanner.files, device=scanner.device)
    known = {names.HOUSEKEEPING, *ours}
    for name in _names(scanner, house.root):
        if name not in known:
            foreign.count(name, dir_fd=house.root)
    inside = (*survey.versions.values(), *survey.trash.values())
    survey.foreign_entries = foreign.entries + sum(tally.foreign for tally in inside)
    survey.foreign_bytes = foreign.used_bytes + sum(tally.foreign_bytes for tally in inside)


def _names(scanner: Scanner, fd: int) -> list[str]:
    with scanner.files.scandir(fd) as entries:
        return [entry.name for entry in entries]
