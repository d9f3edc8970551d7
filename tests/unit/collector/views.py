"""What a loop shows of a collector at work."""

from __future__ import annotations

import dataclasses
from typing import Any

from epd.api.names import Reason
from epd.collector.inputs import Policy
from epd.collector.liveness import Named, liveness
from epd.collector.policy import InForce
from epd.collector.report import View
from epd.collector.result import PassResult, State, TroubleFacts, VersionFacts, VolumeFacts
from epd.collector.seen import Root
from epd.collector.tally import Removed, Tally

POLICY = Policy(
    enabled=True, dry_run=False, version_grace=3600, entry_ttl=72 * 3600, min_idle=1800, high_percent=85, low_percent=70
)
IN_FORCE = InForce(policy=POLICY, origins={"enabled": "a", "dryRun": "b"}, users=("a", "b"))
GOOD = liveness(Named(live={"v": ("a",)}), taken=999, now=999)
RESULT = PassResult(
    root_id="r",
    owned=True,
    finished=1_796_000_000.9,
    rescanned=True,
    volume=VolumeFacts(capacity_bytes=100, used_bytes=60, capacity_inodes=10, used_inodes=4),
    used_bytes=50,
    entries=7,
    foreign_bytes=3,
    foreign_entries=2,
    trash_bytes=5,
    versions=(
        VersionFacts(name="v", state=State.LIVE, entries=7, used_bytes=45, users=("a",)),
        VersionFacts(name="w", state=State.CONDEMNED, since=1_796_000_000),
    ),
    troubles=(TroubleFacts(reason=Reason.OVER_WATERMARK, message="grow it"),),
)
TALLY = Tally(
    passes=4, latest=RESULT, freed_bytes=11, collected=Removed(finished=0, entries=1, versions=2, freed_bytes=3)
)


def view(**changes: Any) -> View:
    given = View(
        root=Root(claim="ec", sub_path="qwen"),
        now=1000,
        tally=TALLY,
        in_force=IN_FORCE,
        liveness=GOOD,
        last_valid=999,
    )
    return dataclasses.replace(given, **changes)
