from __future__ import annotations

import dataclasses

from prometheus_client.parser import text_string_to_metric_families

from epd.collector import metrics
from epd.collector.inputs import Policy
from epd.collector.policy import InForce
from epd.collector.report import View
from epd.collector.result import Cause, PassResult, Spared, State, VersionFacts, VolumeFacts
from epd.collector.tally import Tally
from unit.collector.views import POLICY, view

RESULT = PassResult(
    owned=True,
    scan_seconds=1.5,
    volume=VolumeFacts(capacity_bytes=100, used_bytes=60, capacity_inodes=10, used_inodes=4),
    used_bytes=50,
    entries=7,
    foreign_bytes=3,
    trash_bytes=5,
    oldest_trash=9,
    pins=2,
    clock_skew=-0.5,
    over_watermark=True,
    versions=(VersionFacts(name="a", state=State.LIVE), VersionFacts(name="b", state=State.LIVE)),
    removed={Cause.TTL: 8},
)
TALLY = Tally(
    passes=4,
    failures=1,
    latest=RESULT,
    scanned_entries=70,
    removed={Cause.TTL: 8},
    freed={Cause.TTL: 80},
    spared={Spared.PINNED: 6},
    errors={("unlink", "EIO"): 2},
)


def samples(given: View, *, running: float | None = None, over_high: float = 0) -> dict[str, float]:
    """Name with its own labels to value; all samples have the claim's labels."""
    page = metrics.render(given, running=running, over_high=over_high).decode()
    found = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            own = {key: value for key, value in sample.labels.items() if key not in ("claim", "sub_path")}
            assert (sample.labels["claim"], sample.labels["sub_path"]) == ("ec", "qwen")
            found[sample.name + "".join(f"[{value}]" for value in own.values())] = sample.value
    return found


def test_every_metric() -> None:
    page = samples(view(tally=TALLY), running=3, over_high=12)
    zeros = {name: value for name, value in page.items() if not value}
    assert {name: value for name, value in page.items() if value} == {
        "epd_gc_collection_enabled": 1,
        "epd_gc_high_watermark_ratio": 0.85,
        "epd_gc_low_watermark_ratio": 0.7,
        "epd_gc_roots_valid": 1,
        "epd_gc_roots_age_seconds": 1,
        "epd_gc_pass_running_seconds": 3,
        "epd_gc_passes_total": 4,
        "epd_gc_pass_failures_total": 1,
        "epd_gc_entries_scanned_total": 70,
        "epd_gc_deleted_total[ttl]": 8,
        "epd_gc_deleted_bytes_total[ttl]": 80,
        "epd_gc_spared_total[pinned]": 6,
        "epd_gc_errors_total[EIO][unlink]": 2,
        "epd_gc_time_over_high_seconds_total": 12,
        "epd_gc_root_owned": 1,
        "epd_gc_bytes_used": 50,
        "epd_gc_entries": 7,
        "epd_gc_foreign_bytes": 3,
        "epd_gc_trash_bytes": 5,
        "epd_gc_oldest_trash_seconds": 9,
        "epd_gc_pins": 2,
        "epd_gc_scan_seconds": 1.5,
        "epd_gc_clock_skew_seconds": -0.5,
        "epd_gc_over_high": 1,
        "epd_gc_volume_capacity_bytes": 100,
        "epd_gc_volume_bytes_used": 60,
        "epd_gc_volume_capacity_inodes": 10,
        "epd_gc_inodes_used": 4,
        "epd_gc_versions[Live]": 2,
    }
    assert "epd_gc_deleted_total[watermark]" in zeros, "so that a rate has a beginning"
    assert {"epd_gc_dry_run", "epd_gc_foreign_entries", "epd_gc_volume_silent_seconds"} < set(zeros)


def test_before_a_first_pass_nothing_is_said_of_the_store() -> None:
    page = samples(view(tally=Tally(), liveness=None, last_valid=None))
    assert page["epd_gc_roots_valid"] == 0
    assert page["epd_gc_passes_total"] == 0
    assert not {"epd_gc_bytes_used", "epd_gc_entries", "epd_gc_roots_age_seconds"} & set(page)


def test_a_dry_run_counts_its_victims() -> None:
    dry: Policy = dataclasses.replace(POLICY, dry_run=True)
    page = samples(view(tally=TALLY, in_force=InForce(policy=dry, origins={"dryRun": "a"}, users=("a",))))
    assert page["epd_gc_dry_run_victims[ttl]"] == 8
    assert "epd_gc_dry_run_victims[ttl]" not in samples(view(tally=TALLY))


def test_a_silent_volume() -> None:
    assert samples(view(silent=990))["epd_gc_volume_silent_seconds"] == 10
