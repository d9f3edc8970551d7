"""The collector on a real node: what it deletes, what it keeps, and how status and Events tell it.

Engines never start here: the store is filled by hand, so that each test knows every file.
"""

from __future__ import annotations

import copy
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster import Cluster, entries
from cluster.deployed import Deployed
from epd.connector.entry import Shape
from epd.connector.records import Record
from epd.connector.store import Store

pytestmark = pytest.mark.node

MIB = 1 << 20
HOUR = 3600
QUICK = {"versionGracePeriod": "10s", "minIdle": "10s"}
"""The shortest that the API takes: nobody else writes to these stores."""


@pytest.fixture
def idle(demo_manifest: dict[str, Any], scratch: Deployed) -> dict[str, Any]:
    """The demo under a name to throw away, with engines that are scheduled and never start."""
    manifest = copy.deepcopy(demo_manifest)
    manifest["metadata"]["name"] = scratch.name
    manifest["spec"]["engine"] |= {"image": "localhost/no-such-image:v0.32.0", "imagePullPolicy": "Never"}
    manifest["spec"]["encoderCache"]["garbageCollection"] = dict(QUICK)
    return manifest


def until(true: Callable[[], bool], what: str, *, seconds: float = 120) -> None:
    """Wait for something that a collector or the operator is about to do."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.5)


def fill(store: Path, epd: Deployed, *, count: int, oldest: float = 2 * HOUR) -> list[Path]:
    """Write `count` entries as an engine would, the first one `oldest` seconds old, each next one younger."""
    status = epd.get()["status"]
    version, claim = status["modelVersion"], f"{epd.namespace}/{status['encoderCache']['claim']}"
    engine = Store(str(store), version, stamp_seconds=HOUR)
    engine.prepare(Record(version=version, claim=claim, layout="Managed", inputs={}, created=""))
    made = []
    for number in range(count):
        identifier = f"picture-{number}"
        engine.publish(identifier, bytes(MIB), Shape(dtype="F32", rows=MIB // 1024, width=256))
        file = entries.path(store, version, identifier)
        used = time.time() - oldest * (count - number) / count
        os.utime(file, (used, used))
        made.append(file)
    engine.close()
    for found in (store / ".epd-gc", store / version):
        for path in (found, *found.rglob("*")):
            os.chown(path, 1000, 1000)
    return made


def collector_ready(epd: Deployed) -> None:
    """Wait for the condition that needs a running collector which owns its root."""
    epd.wait_condition("EncoderCacheHealthy", "Healthy", seconds=180)


def versions(epd: Deployed) -> dict[str, str]:
    """Version to state, as status tells it."""
    found = (epd.get()["status"].get("encoderCache") or {}).get("versions") or []
    return {version["name"]: version["state"] for version in found}


def event_reasons(epd: Deployed) -> set[str]:
    """Reasons of the object's Events."""
    listed = json.loads(epd.run("get", "events", "-o", "json"))["items"]
    return {e["reason"] for e in listed if e["involvedObject"]["name"] == epd.name}


def test_a_version_that_nobody_names_any_more_is_removed(
    cluster: Cluster, idle: dict[str, Any], scratch: Deployed
) -> None:
    scratch.apply(idle)
    collector_ready(scratch)
    store = cluster.claim_folder(scratch.namespace, f"{scratch.name}-encoder-cache")
    old = scratch.get()["status"]["modelVersion"]
    fill(store, scratch, count=20)
    (store / "notes.txt").write_text("of somebody else")
    until(lambda: versions(scratch).get(old) == "Live", "status shows the live version")

    scratch.patch(
        {"suspend": True, "encoderCache": {"salt": "2"}}
    )  # these pods never start, so none would replace them
    until(
        lambda: not (store / old).exists(), "the old version's directory is gone", seconds=240
    )  # two passes and the grace
    until(lambda: not list((store / ".epd-gc" / "trash").iterdir()), "the trash is empty")
    new = scratch.get()["status"]["modelVersion"]
    assert new != old
    assert (store / "notes.txt").read_text() == "of somebody else"
    until(lambda: old not in versions(scratch), "status forgets the version")
    until(lambda: {"VersionCondemned", "VersionRemoved"} <= event_reasons(scratch), "Events tell it")


def test_the_longest_unused_entries_of_a_live_version_go_first(
    cluster: Cluster, idle: dict[str, Any], scratch: Deployed
) -> None:
    idle["spec"]["encoderCache"]["garbageCollection"] |= {
        "maxSize": "16Mi",
        "highWatermarkPercent": 80,
        "lowWatermarkPercent": 50,
    }
    scratch.apply(idle)
    collector_ready(scratch)
    store = cluster.claim_folder(scratch.namespace, f"{scratch.name}-encoder-cache")
    made = fill(store, scratch, count=20)
    until(lambda: not made[0].exists(), "eviction begins")
    until(lambda: sum(file.exists() for file in made) <= 8, "eviction ends")
    time.sleep(2)  # should it go too far
    kept = [file.exists() for file in made]
    assert kept == sorted(kept), "an entry went before an older one"
    assert 6 <= sum(kept) <= 8


def test_a_dry_run_lists_its_victims_and_deletes_nothing(
    cluster: Cluster, idle: dict[str, Any], scratch: Deployed
) -> None:
    idle["spec"]["encoderCache"]["garbageCollection"] |= {"dryRun": True, "entryTTL": "1h"}
    scratch.apply(idle)
    scratch.wait_condition("EncoderCacheHealthy", "DryRun", seconds=180)
    store = cluster.claim_folder(scratch.namespace, f"{scratch.name}-encoder-cache")
    made = fill(store, scratch, count=4)  # 2 h, 1.5 h, 1 h and 0.5 h old
    collector = f"deployment/{scratch.name}-encoder-cache-collector"
    claim = f"{scratch.name}-encoder-cache"
    listed = json.loads(
        scratch.run("exec", collector, "--", "epd-collector", "plan", "--claim", claim, "--output", "json")
    )
    named = {Path(victim["path"]).name for victim in listed["victims"]}
    assert named == {file.name for file in made[:3]}, "all but the one of half an hour"
    assert all(file.exists() for file in made)


def brought(cluster: Cluster, namespace: str, claim: str, folder: Path | None = None) -> Path:
    """A claim as a user brings it, on a volume of its own or on a folder that another one serves too."""
    own = cluster.make_volume(claim, claim=(namespace, claim))
    if folder is not None:
        own.rmdir()
        own.symlink_to(folder)
    cluster.bring_claim(namespace, claim)
    return own


def test_reclaim_policy_delete_empties_a_claim_that_was_brought_and_keeps_the_claim(
    cluster: Cluster, idle: dict[str, Any], scratch: Deployed
) -> None:
    claim = f"{scratch.name}-brought"
    store = brought(cluster, scratch.namespace, claim)
    (store / "notes.txt").write_text("of somebody else")
    idle["spec"]["encoderCache"] |= {
        "volume": {"persistentVolumeClaim": {"claimName": claim}},
        "reclaimPolicy": "Delete",
        "garbageCollection": {"versionGracePeriod": "24h"},
    }
    scratch.apply(idle)
    collector_ready(scratch)
    version = scratch.get()["status"]["modelVersion"]
    fill(store, scratch, count=5)
    scratch.run("delete", "epd", scratch.name, "--timeout=200s")
    assert not (store / version).exists()
    assert (store / "notes.txt").read_text() == "of somebody else"
    assert scratch.run("get", "pvc", claim, "-o", "jsonpath={.status.phase}") == "Bound"
    scratch.run("delete", "pvc", claim, "--timeout=60s")


def test_the_second_claim_on_one_folder_is_refused_until_it_adopts_the_root(
    cluster: Cluster, idle: dict[str, Any], scratch: Deployed
) -> None:
    first, second = f"{scratch.name}-first", f"{scratch.name}-second"
    store = brought(cluster, scratch.namespace, first)
    idle["spec"]["encoderCache"]["volume"] = {"persistentVolumeClaim": {"claimName": first}}
    scratch.apply(idle)
    collector_ready(scratch)
    fill(store, scratch, count=2)

    rival = copy.deepcopy(idle)
    rival["metadata"]["name"] = f"{scratch.name}-rival"
    rival["spec"]["encoderCache"] |= {"volume": {"persistentVolumeClaim": {"claimName": second}}, "salt": "rival"}
    brought(cluster, scratch.namespace, second, folder=store)
    other = Deployed(cluster.kubectl, scratch.namespace, rival["metadata"]["name"])
    other.apply(rival)
    try:
        found = other.wait_condition("EncoderCacheHealthy", "RootOwnedByAnotherClaim", seconds=180)
        root_id = json.loads((store / ".epd-gc" / "owner.json").read_text())["rootId"]
        assert first in found["message"]
        assert root_id in found["message"]
        scratch.run("delete", "epd", scratch.name, "--cascade=foreground", "--timeout=120s")
        scratch.run("annotate", "pvc", second, f"epd.dev/adopt-encoder-cache-root={root_id}")
        collector_ready(other)
    finally:
        other.run("delete", "epd", other.name, "--cascade=foreground", "--timeout=120s")
        scratch.run("delete", "pvc", first, second, "--ignore-not-found", "--timeout=60s")


def test_the_collector_waits_for_the_first_engine_pod(
    cluster: Cluster, idle: dict[str, Any], scratch: Deployed
) -> None:
    """It would choose the node of a volume that waits for its first consumer."""
    spec = idle["spec"]["encoderCache"]["volume"]["volumeClaimTemplate"]["spec"]
    spec["storageClassName"] = "epd-hostpath-wait"
    nowhere = {"spec": {"nodeSelector": {"no-such": "node"}}}
    idle["spec"]["engine"]["podTemplate"] = nowhere
    scratch.apply(idle)
    scratch.wait_condition("StorageReady", "WaitingForFirstConsumer")
    time.sleep(5)  # time to make a mistake in
    assert "-collector" not in scratch.run("get", "deployments", "-o", "name", "-l", f"epd.dev/name={scratch.name}")
    assert not [
        name
        for name in scratch.run("get", "deployments", "-o", "name").split()
        if name.endswith(f"{scratch.name}-encoder-cache-collector")
    ]
    scratch.patch({"engine": {"podTemplate": None}})
    collector_ready(scratch)
