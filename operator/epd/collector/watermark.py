"""How much must go: from the volume's usage, our own sums and the policy. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from epd.collector.inputs import Policy
from epd.collector.result import Cause, VolumeFacts

_WHOLE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """What we hold of the volume. Trash counts: it is used, and about to be freed."""

    used_bytes: int
    entries: int
    trash_bytes: int = 0
    trash_entries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What to free of some versions (None: of all), and why."""

    versions: frozenset[str] | None
    cause: Cause
    need_bytes: int
    need_entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """Needs, and what a person should know."""

    needs: tuple[Need, ...]
    over: bool
    """Whether the volume or a share of it is above high."""
    foreign_dominates: bool


def pressure(volume: VolumeFacts, ours: Ours, used_by_version: Mapping[str, int], policy: Policy) -> Pressure:
    """Return what to evict: shares of single objects first, then of the volume what is still too much after them."""
    needs = []
    for versions, size in policy.max_sizes:
        used = sum(used_by_version.get(version, 0) for version in versions)
        if size > 0 and used * _WHOLE > size * policy.high_percent:
            need = used - size * policy.low_percent // _WHOLE
            needs.append(Need(versions=versions, cause=Cause.MAX_SIZE, need_bytes=need, need_entries=0))
    by_bytes = _excess(volume.used_bytes, volume.capacity_bytes, ours.used_bytes, policy)
    by_inodes = _excess(volume.used_inodes, volume.capacity_inodes, ours.entries, policy)
    pending = sum(need.need_bytes for need in needs)
    need_bytes = max(0, (by_bytes or 0) - ours.trash_bytes - pending)
    need_entries = max(0, (by_inodes or 0) - ours.trash_entries)
    if need_bytes or need_entries:
        needs.append(Need(versions=None, cause=Cause.WATERMARK, need_bytes=need_bytes, need_entries=need_entries))
    over = bool(needs) or by_bytes != 0 or by_inodes != 0
    return Pressure(needs=tuple(needs), over=over, foreign_dominates=by_bytes is None or by_inodes is None)


def _excess(used: int, capacity: int, ours: int, policy: Policy) -> int | None:
    """Return what to free of a resource: 0 below high; None if what is not ours exceeds high all by itself.

    The aim is low. Where foreign data leaves less room than that, half of the room between it and high stays ours:
    otherwise foreign data would evict our own without ever getting below low.
    """
    if capacity <= 0 or used * _WHOLE <= capacity * policy.high_percent:
        return 0
    high, low = capacity * policy.high_percent // _WHOLE, capacity * policy.low_percent // _WHOLE
    foreign = max(0, used - ours)
    if foreign >= high:
        return None
    return used - max(low, (foreign + high) // 2)
