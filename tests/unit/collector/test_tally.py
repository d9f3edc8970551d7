from __future__ import annotations

from dataclasses import replace

from epd.api.names import Reason
from epd.collector.result import Cause, PassResult, Spared, TroubleFacts
from epd.collector.tally import Removed, Tally

IDLE = PassResult(rescanned=True, scanned_entries=5, finished=10.0)
BUSY = PassResult(
    rescanned=True,
    scanned_entries=5,
    finished=20.0,
    removed_entries=3,
    removed_versions=1,
    freed_bytes=30,
    removed={Cause.TTL: 2, Cause.DEAD_VERSION: 1},
    freed={Cause.TTL: 20, Cause.DEAD_VERSION: 10},
    spared={Spared.PINNED: 1},
    errors={("unlink", "EIO"): 2},
)


def tally(*results: PassResult, dry_run: bool = False) -> Tally:
    found = Tally()
    for result in results:
        found = found.after(result, dry_run=dry_run, now=99.0)
    return found


def test_sums_over_passes() -> None:
    assert tally(IDLE, BUSY, BUSY) == Tally(
        passes=3,
        latest=BUSY,
        freed_bytes=60,
        scanned_entries=15,
        removed={Cause.TTL: 4, Cause.DEAD_VERSION: 2},
        freed={Cause.TTL: 40, Cause.DEAD_VERSION: 20},
        spared={Spared.PINNED: 2},
        errors={("unlink", "EIO"): 4},
        collected=Removed(finished=20.0, entries=3, versions=1, freed_bytes=30),
    )


def test_a_dry_run_removes_nothing() -> None:
    assert tally(BUSY, dry_run=True) == Tally(
        passes=1, latest=BUSY, scanned_entries=5, spared={Spared.PINNED: 1}, errors={("unlink", "EIO"): 2}
    )


def test_passes_that_follow_at_once_are_one_collection() -> None:
    first = PassResult(more=True, removed_entries=1, freed_bytes=1, finished=1.0)
    second = PassResult(more=True, removed_entries=2, freed_bytes=2, finished=2.0)
    last = PassResult(finished=3.0)
    assert tally(first, second).collected == Removed(finished=2.0, entries=3, freed_bytes=3)
    assert tally(first, second, last).collected == Removed(finished=2.0, entries=3, freed_bytes=3)
    assert tally(first, last, second, last).collected == Removed(finished=2.0, entries=2, freed_bytes=2)


def test_nothing_is_known_before_the_first_whole_scan() -> None:
    begun = PassResult(more=True)
    assert tally(begun).passes == 0
    assert tally(begun, PassResult(more=True, rescanned=True), begun).passes == 2


def test_a_pass_without_the_servers_time_gets_ours() -> None:
    assert tally(PassResult(freed_bytes=1)).collected == Removed(finished=99.0, freed_bytes=1)


def test_a_pass_that_could_not_look_changes_nothing_that_is_known() -> None:
    troubles = (TroubleFacts(reason=Reason.COLLECTION_FAILED, message="the root cannot be worked on: EIO"),)
    failed = PassResult(errors={("open", "EIO"): 1}, troubles=troubles)
    assert tally(failed).passes == 0
    found = tally(IDLE, failed)
    assert (found.passes, found.errors) == (1, {("open", "EIO"): 1})
    assert found.latest == replace(IDLE, errors={("open", "EIO"): 1}, troubles=troubles)


def test_a_root_of_another_claim_is_known_to_be() -> None:
    refused = PassResult(troubles=(TroubleFacts(reason=Reason.ROOT_OWNED_BY_ANOTHER_CLAIM, message="b"),))
    assert (tally(IDLE, refused).passes, tally(IDLE, refused).latest) == (2, refused)


def test_failures() -> None:
    assert tally(IDLE).failed().failures == 1
