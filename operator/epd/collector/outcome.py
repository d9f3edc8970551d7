"""What a pass tells at its end. Pure: reads a finished round, changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

from epd.api.names import Reason
from epd.collector.ledger import Ledger
from epd.collector.result import PassResult, State, TroubleFacts, VersionFacts, VolumeFacts
from epd.collector.round import Round
from epd.collector.scan import Tally
from epd.collector.survey import Survey
from epd.collector.trash import version_of


def refused(ledger: Ledger, volume: VolumeFacts | None = None) -> PassResult:
    """Return the result of a pass over a root that is not ours or cannot be read."""
    return PassResult(volume=volume or VolumeFacts(), errors=dict(ledger.errors), troubles=ledger.told())


def told(round_: Round) -> PassResult:
    """Return the result of a pass."""
    ledger, survey, reading = round_.ledger, round_.survey, round_.reading
    ours = survey.ours if survey is not None else None
    return PassResult(
        root_id=round_.owner.root_id,
        owned=True,
        finished=reading.now if reading is not None else None,
        more=round_.more,
        rescanned=round_.rescanned,
        scanned_entries=survey.scanned if survey is not None and round_.rescanned else 0,
        scan_seconds=survey.seconds if survey is not None and round_.rescanned else 0.0,
        volume=round_.volume,
        used_bytes=ours.used_bytes if ours is not None else 0,
        entries=sum(tally.entries for tally in survey.versions.values()) if survey is not None else 0,
        foreign_bytes=survey.foreign_bytes if survey is not None else 0,
        foreign_entries=survey.foreign_entries if survey is not None else 0,
        trash_bytes=ours.trash_bytes if ours is not None else 0,
        oldest_trash=_oldest_trash(round_),
        pins=survey.pins if survey is not None else 0,
        versions=_versions(round_, survey) if survey is not None else (),
        removed_entries=0 if round_.policy.dry_run else sum(ledger.removed.values()),
        removed_versions=ledger.removed_versions,
        freed_bytes=0 if round_.policy.dry_run else sum(ledger.freed.values()),
        removed=dict(ledger.removed),
        freed=dict(ledger.freed),
        spared=dict(ledger.spared),
        errors=dict(ledger.errors),
        victims=tuple(ledger.victims),
        victims_left_out=ledger.victims_left_out,
        condemned=tuple(ledger.condemned),
        absolved=tuple(ledger.absolved),
        renamed=tuple(ledger.renamed),
        over_watermark=_over(round_),
        liveness_valid=round_.liveness is not None and round_.liveness.valid,
        clock_skew=reading.skew if reading is not None else 0.0,
        troubles=(*ledger.told(), *_over_trouble(round_)),
    )


def _oldest_trash(round_: Round) -> float | None:
    if round_.survey is None or round_.reading is None or not round_.survey.trash_since:
        return None
    return max(0.0, round_.reading.now - min(round_.survey.trash_since.values()))


def _over(round_: Round) -> bool:
    volume, policy = round_.volume, round_.policy
    return (
        volume.used_bytes * 100 > volume.capacity_bytes * policy.high_percent
        or volume.used_inodes * 100 > volume.capacity_inodes * policy.high_percent
    )


def _over_trouble(round_: Round) -> tuple[TroubleFacts, ...]:
    if not _over(round_) or Reason.FOREIGN_DATA_DOMINATES in round_.ledger.troubles or round_.more:
        return ()
    message = "usage stays above the high watermark: what is left is pinned, in use, or may not be evicted"
    return (TroubleFacts(reason=Reason.OVER_WATERMARK, message=message),)


def _versions(round_: Round, survey: Survey) -> tuple[VersionFacts, ...]:
    users = round_.liveness.live if round_.liveness is not None else {}
    marks = {one.version: one.condemned for one in round_.standings}
    found = [
        VersionFacts(
            name=version,
            state=State.LIVE if marks.get(version) is None else State.CONDEMNED,
            entries=tally.entries,
            used_bytes=tally.used_bytes,
            since=marks.get(version),
            users=tuple(users.get(version, ())),
            pinned=tally.pinned,
        )
        for version, tally in sorted(survey.versions.items())
    ]
    return (*found, *_trash(survey.trash))


def _trash(trash: Mapping[str, Tally]) -> tuple[VersionFacts, ...]:
    """Return one line for each version in the trash, however often it was thrown away."""
    sums: dict[str, tuple[int, int]] = {}
    for name, tally in sorted(trash.items()):
        version = version_of(name) or name
        entries, used = sums.get(version, (0, 0))
        sums[version] = (entries + tally.entries, used + tally.used_bytes)
    return tuple(
        VersionFacts(name=version, state=State.TRASH, entries=entries, used_bytes=used)
        for version, (entries, used) in sums.items()
    )
