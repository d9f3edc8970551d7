"""What a pass found and did, as plain values for status, metrics, Events and the plan. Shapes only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from epd.api.names import Reason


class Cause(StrEnum):
    """Why something is removed; labels the metric of deletions."""

    DEAD_VERSION = "dead-version"
    TTL = "ttl"
    WATERMARK = "watermark"
    MAX_SIZE = "max-size"
    TEMPORARY = "temporary"
    """Left over by a writer that died."""
    PIN = "pin"
    """Left over by a reader that died."""


class Spared(StrEnum):
    """Why something that was due is kept; labels a metric."""

    PINNED = "pinned"
    FRESH = "fresh"
    """Used or written too recently."""
    CHANGED = "changed"
    """Not what it was when it was chosen."""
    SLOW = "slow"
    """Its last check is too old: the process was paused in between."""
    FOREIGN = "foreign"


class State(StrEnum):
    """Where a version is in its life."""

    LIVE = "Live"
    CONDEMNED = "Condemned"
    TRASH = "Trash"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFacts:
    """One of our versions. `since` is the server's time in seconds, None when unknown."""

    name: str
    state: State
    entries: int = 0
    used_bytes: int = 0
    since: float | None = None
    users: tuple[str, ...] = ()
    pinned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeFacts:
    """What statvfs says."""

    capacity_bytes: int = 0
    used_bytes: int = 0
    capacity_inodes: int = 0
    """0 on file systems that count none."""
    used_inodes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleFacts:
    """Something a person should know."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """What a dry run would remove. `path` is relative to the root; `age` in seconds since the last use."""

    path: str
    cause: Cause
    used_bytes: int
    age: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """One pass.

    Attributes:
        finished: The server's time at its end, seconds since the epoch; None if it could not be told.
        more: Whether work is left that needs no waiting: call again at once.
        rescanned: Whether entries were counted anew; else counts are those of the last scan less what was removed.
        scanned_entries, scan_seconds: Of this pass's scan.
        removed_entries, removed_versions, freed_bytes: Of this pass.
        removed: Entries by cause. In a dry run: what would have been removed.
        freed: Bytes by cause.
        victims: Of a dry run, at most `VICTIMS_LIMIT`; `victims_left_out` counts the others.
        condemned, absolved, renamed: Versions that changed their state in this pass.
        errors: (call, errno's name) to count.
        oldest_trash: Seconds since which a directory of the trash saw no directory in it go; None without trash.
        clock_skew: The server's clock less the collector's wall clock is not known here; this is how far the server's
            clock went beyond the monotonic one since the last pass, in seconds.
    """

    root_id: str = ""
    owned: bool = False
    finished: float | None = None
    more: bool = False
    rescanned: bool = False
    scanned_entries: int = 0
    scan_seconds: float = 0.0
    volume: VolumeFacts = VolumeFacts()
    used_bytes: int = 0
    entries: int = 0
    foreign_bytes: int = 0
    foreign_entries: int = 0
    trash_bytes: int = 0
    oldest_trash: float | None = None
    pins: int = 0
    versions: tuple[VersionFacts, ...] = ()
    removed_entries: int = 0
    removed_versions: int = 0
    freed_bytes: int = 0
    removed: Mapping[Cause, int] = field(default_factory=dict)
    freed: Mapping[Cause, int] = field(default_factory=dict)
    spared: Mapping[Spared, int] = field(default_factory=dict)
    errors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    victims: tuple[Victim, ...] = ()
    victims_left_out: int = 0
    condemned: tuple[str, ...] = ()
    absolved: tuple[str, ...] = ()
    renamed: tuple[str, ...] = ()
    over_watermark: bool = False
    liveness_valid: bool = False
    clock_skew: float = 0.0
    troubles: tuple[TroubleFacts, ...] = ()

    @property
    def blind(self) -> bool:
        """Whether the root could not be looked at: then nothing here says what lies on it, or whose it is."""
        return not self.owned and any(trouble.reason is Reason.COLLECTION_FAILED for trouble in self.troubles)
