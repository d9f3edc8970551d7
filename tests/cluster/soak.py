"""A soak of the encoder-cache store on the node: steady load, eviction at full rate, versions that come and go.

    python -m cluster.soak [--minutes 10] [--picture FILE.svg]

Real vLLM, one deployment, a volume of its own whose watermarks it crosses every quarter of a minute. Exit status 1
names what was not as it must be. Needs the native node, whose volumes are folders of this machine; leaves the node and
the operator, and nothing else.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster import Cluster, ensure, paths
from cluster.conftest import example
from cluster.deployed import Deployed
from cluster.release import install
from cluster.soak_load import Clients, Filler
from cluster.soak_told import Soaked, failures, picture, summary
from cluster.soak_watch import Watch, entries_of
from cluster.steps import HarnessError, run, say, step, until

NAME, CLAIM = "soak", "soak-cache"
PICTURE = paths.REPO / "docs" / "images" / "encoder-cache-soak.svg"
VOLUME = 128 << 20
HIGH, LOW = 70, 50
"""Percent."""
RATE = 400.0
"""Entries a second by hand, 4 KiB each: from low to high in 16 s, while writing them costs a tenth of a core."""
CLIENTS = 3
FIRST_CHANGE_SECONDS, CHANGE_SECONDS = 50.0, 150.0
"""Until the first change of the version, and between two; two new engines take 75 to 100 s of them on 2 cores."""
LEFT_SECONDS = 120.0
"""Of load after the last change, so that it happens under load as a whole."""
SETTLE_SECONDS = 300.0
"""For the last version to go: its engines drain, and two passes and the grace follow."""
COLLECTION = {
    "minIdle": "10s",
    "versionGracePeriod": "10s",
    "entryTTL": "75s",  # at full rate the volume is full before
    "highWatermarkPercent": HIGH,
    "lowWatermarkPercent": LOW,
    "maxSize": "1Gi",  # so that the volume's own size decides, not the claim's
    # As each engine: new engines take all of 2 cores for minutes, and with the default of 50m a pass then takes 20 s.
    "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
}


def main() -> int:
    """Soak; 1 if anything was not as it must be."""
    parser = argparse.ArgumentParser(
        prog="python -m cluster.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--picture", type=Path, default=PICTURE, help=f"default {PICTURE.name} of docs/images")
    arguments = parser.parse_args()
    try:
        cluster = ensure()
        if cluster.provider != "native":
            raise HarnessError(f"the soak mounts a volume on this machine, where {cluster.provider} does not see it")
        install(cluster)
        soaked = soak(cluster, arguments.minutes * 60)
    except (HarnessError, AssertionError) as error:
        say(f"error: {error}")
        return 1
    arguments.picture.parent.mkdir(parents=True, exist_ok=True)
    arguments.picture.write_text(picture(soaked))
    say(summary(soaked))
    for failure in (found := failures(soaked)):
        say(f"error: {failure}")
    return 1 if found else 0


def soak(cluster: Cluster, seconds: float) -> Soaked:
    """Soak in a namespace of its own, and take all of it away. What a failed soak's objects said is printed."""
    with cluster.namespace("soak") as namespace, volume(cluster, namespace) as store:
        try:
            soaked = Soak(cluster, namespace, store).run(seconds)
        except (HarnessError, AssertionError):
            say(cluster.describe(namespace))
            raise
        if failures(soaked):
            say(cluster.describe(namespace))
        epd = Deployed(cluster.kubectl, namespace, NAME)
        epd.run("delete", "epd", NAME, "--cascade=foreground", "--timeout=180s")  # while its volume is still there
        epd.run("delete", "pvc", CLAIM, "--timeout=60s")
    return soaked


@contextmanager
def volume(cluster: Cluster, namespace: str) -> Iterator[Path]:
    """A claim on a small tmpfs, so that statvfs tells the size that the claim asks for."""
    name = f"{namespace}-cache"
    folder = cluster.make_volume(name, size=str(VOLUME), claim=(namespace, CLAIM))
    run(["mount", "-t", "tmpfs", "-o", f"size={VOLUME},uid=0,gid=1000,mode=2770", "tmpfs", folder])
    try:
        spec = {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "resources": {"requests": {"storage": str(VOLUME)}},
        }
        metadata = {"name": CLAIM, "namespace": namespace}
        cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], capture_output=True, check=False)
        cluster.delete_volume(name)


def manifest() -> dict[str, Any]:
    """The demo on the small volume."""
    found = copy.deepcopy(example("01-cpu-demo.yaml"))
    found["metadata"]["name"] = NAME
    found["spec"]["encoderCache"] = {
        "volume": {"persistentVolumeClaim": {"claimName": CLAIM}},
        "garbageCollection": dict(COLLECTION),
    }
    return found


def strangers(store: Path) -> None:
    """Put things into the root that are not the cache's."""
    folder = store / "of-somebody-else"
    (folder / "v1-tinyvlm-0123456789ab" / "00").mkdir(parents=True)
    (folder / "notes.txt").write_text("not the cache's")
    (folder / "v1-tinyvlm-0123456789ab" / "00" / f"{'0' * 64}.safetensors").write_bytes(os.urandom(4096))
    (store / "v1-stranger-0123456789ab").mkdir()
    (store / "v1-stranger-0123456789ab" / "notes.txt").write_text("a version's name, and nobody's record")
    (store / "link").symlink_to("of-somebody-else")


def fingerprint(store: Path) -> Mapping[str, str]:
    """Names, times and content of what `strangers` put there."""
    found = {}
    top = [store / "of-somebody-else", store / "v1-stranger-0123456789ab", store / "link"]
    for path in (*top, *(below for each in top[:2] for below in sorted(each.rglob("*")))):
        status = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(store))] = f"{status.st_mode:o} {status.st_mtime_ns} {content}"
    return found


class Soak:
    """One soak in a namespace of its own."""

    def __init__(self, cluster: Cluster, namespace: str, store: Path) -> None:
        self._cluster, self._store = cluster, store
        self._epd = Deployed(cluster.kubectl, namespace, NAME)
        self._versions: list[str] = []
        self._changes: list[float] = []

    def run(self, seconds: float) -> Soaked:
        """Deploy, load for `seconds`, and wait for the old versions to go."""
        strangers(self._store)
        before = fingerprint(self._store)
        self._cluster.model_claim(self._epd.namespace)
        with step("deploy", may_take="2 min"):
            self._epd.apply(manifest())
            self._epd.wait_ready()
            self._epd.wait_condition("EncoderCacheHealthy", "Healthy", seconds=180)
        self._began = time.monotonic()
        watch = Watch(self._cluster, self._epd, self._store, began=self._began)
        self._versions.append(self._epd.get()["status"]["modelVersion"])
        clients = Clients(self._epd.url(), count=CLIENTS)
        filler = Filler(self._store, versions=lambda: self._versions, rate=RATE)
        watch.start()
        try:
            with step("load", may_take=f"{seconds / 60:.0f} min"):
                loaded = self._load(seconds, clients, filler)
            with step("old versions go", may_take="2 min"):
                self._settle()
        finally:
            watch.stop()
        return Soaked(
            seconds=loaded,
            high=HIGH,
            low=LOW,
            volume_bytes=VOLUME,
            answers=clients.answers,
            seen=watch.seen,
            written=filler.written,
            rate_bytes=RATE * Filler.ALLOCATED,
            unwritten=filler.failures,
            versions=self._versions,
            changes=self._changes,
            left=self._left(),
            untouched=fingerprint(self._store) == before,
        )

    def _load(self, seconds: float, clients: Clients, filler: Filler) -> float:
        """Keep clients and filler at work; return for how long."""
        clients.start()
        filler.start()
        try:
            change = FIRST_CHANGE_SECONDS
            while (now := time.monotonic() - self._began) < seconds:
                if now >= change and seconds - now > LEFT_SECONDS and self._rolled():
                    self._change()
                    change = now + CHANGE_SECONDS
                time.sleep(1)
            return now
        finally:
            filler.stop()
            clients.stop()

    def _change(self) -> None:
        """Another version: every engine rolls, and the old one's entries are nobody's."""
        old = self._versions[-1]
        self._epd.patch({"encoderCache": {"salt": str(len(self._versions) + 1)}})
        until("another model version", lambda: self._epd.get()["status"]["modelVersion"] != old, seconds=30)
        self._versions.append(self._epd.get()["status"]["modelVersion"])
        self._changes.append(time.monotonic() - self._began)

    def _rolled(self) -> bool:
        """Whether the last change has come to its end."""
        object_ = self._epd.get()
        ready = next(c for c in object_["status"]["conditions"] if c["type"] == "Ready")
        current = ready.get("observedGeneration") == object_["metadata"]["generation"]
        return bool(ready["status"] == "True" and current)

    def _settle(self) -> None:
        """Wait for the old versions to go; that they did not is told by what is left."""
        trash = self._store / ".epd-gc" / "trash"
        deadline = time.monotonic() + SETTLE_SECONDS
        while (self._left() or any(trash.iterdir())) and time.monotonic() < deadline:
            time.sleep(1)

    def _left(self) -> list[str]:
        return [name for name in entries_of(self._store)[1] if name in self._versions[:-1]]


if __name__ == "__main__":
    sys.exit(main())
