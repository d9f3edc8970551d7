"""A deployment on a volume that can be filled, made read-only and stopped: bindfs over a tmpfs of this machine.

Only on the native node, whose volumes are folders of this machine. Undoes every mount and process it made.
"""

from __future__ import annotations

import copy
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.client import Cluster
from cluster.conftest import example
from cluster.deployed import Deployed
from cluster.steps import HarnessError, run

NAME = "fragile"
FEW_BLOCKS = "20"
"""Of 128 tokens each: two of three requests of 1,200 tokens fit, so the third is preempted (seen with vLLM 0.32)."""
OWN_CACHE = "2048"
"""Embeddings in the engine's own cache; smaller than the largest item, a video of `maxModelLen`, it can't be."""
DEADLINES = {"probe_timeout_seconds": 2, "write_timeout_seconds": 2}
"""Of the Managed connector, so that tests need not wait; a volume that is well answers in milliseconds."""
SIZE = 8 << 20
"""Bytes: some hundred entries of the tiny model, and filled in no time."""


@dataclass
class FragileVolume:
    """The tmpfs at `backing`, served by bindfs at `folder`."""

    backing: Path
    folder: Path
    server: subprocess.Popen[bytes]

    @contextmanager
    def full(self) -> Iterator[None]:
        """There is no free byte."""
        ballast = self.backing / ".ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while file.write(b"\0" * 65536):
                    pass
            except OSError:
                pass
        try:
            yield
        finally:
            ballast.unlink()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """The server answers EROFS to every write."""
        run(["mount", "-o", "remount,ro", self.backing])
        try:
            yield
        finally:
            run(["mount", "-o", "remount,rw", self.backing])

    @contextmanager
    def hung(self) -> Iterator[None]:
        """The server answers nothing: who asks it sleeps in the kernel."""
        self.server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.server.send_signal(signal.SIGCONT)

    def delete_unseen(self, file: Path) -> None:
        """Delete a file as another machine does: ours remembers it for a while, and only who opens it learns.

        Only with `remembers`.
        """
        file.stat()
        (self.backing / file.relative_to(self.folder)).unlink()


@dataclass(frozen=True)
class Fragile:
    """The deployment and its volume."""

    epd: Deployed
    volume: FragileVolume

    @property
    def encoder(self) -> str:
        """Base URL of the encoder."""
        return self.epd.engine("encode")

    @property
    def engine(self) -> str:
        """Base URL of the prefill side."""
        return self.epd.engine("prefill-decode")

    def restarts(self) -> list[int]:
        """Restarts of the engines' containers."""
        pods = [*self.epd.pods("encode"), *self.epd.pods("prefill-decode")]
        return [s["restartCount"] for pod in pods for s in pod["status"]["containerStatuses"]]


def manifest(claim: str, connector: str, engines: int) -> dict[str, Any]:
    """The demo on a claim of its own. Its prefill side has little memory, so that requests are preempted."""
    found = copy.deepcopy(example("01-cpu-demo.yaml"))
    found["metadata"]["name"] = NAME
    spec = found["spec"]
    spec["prefillDecode"]["replicas"] = engines
    spec["prefillDecode"]["args"] = [
        "--no-enable-prefix-caching",
        f"--num-gpu-blocks-override={FEW_BLOCKS}",
        f"--max-num-batched-tokens={OWN_CACHE}",
    ]
    spec["encoderCache"] = {
        "connector": connector,
        "volume": {"persistentVolumeClaim": {"claimName": claim}},
        "garbageCollection": {"enabled": False},
    }
    if connector == "Managed":
        spec["encoderCache"]["extraConfig"] = DEADLINES
    return found


@contextmanager
def fragile_deployment(
    cluster: Cluster, namespace: str, *, connector: str = "Managed", remembers: int = 0, engines: int = 1
) -> Iterator[Fragile]:
    """The deployment, Ready, in a namespace with the tiny model; `remembers` as of `fragile_volume`."""
    volume_name, claim = f"fragile-{secrets.token_hex(3)}", "fragile-cache"
    folder = cluster.make_volume(volume_name, claim=(namespace, claim))
    with fragile_volume(folder, remembers=remembers) as volume:
        cluster.bring_claim(namespace, claim)
        epd = Deployed(cluster.kubectl, namespace, NAME)
        epd.apply(manifest(claim, connector, engines))
        try:
            epd.wait_ready()
            yield Fragile(epd, volume)
        finally:
            epd.run("delete", "epd", NAME, "--cascade=foreground", "--timeout=180s")
            epd.run("delete", "pvc", claim, "--timeout=60s")
    cluster.delete_volume(volume_name)


@contextmanager
def fragile_volume(folder: Path, *, gid: int = 1000, remembers: int = 0) -> Iterator[FragileVolume]:
    """Serve a tmpfs at the folder of a volume made by hand.

    `remembers`: seconds for which the kernel believes what it knows of a file, as NFS clients do; 0 for bindfs's own.
    """
    backing = folder.with_name(f"{folder.name}-backing")
    backing.mkdir()
    run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},uid=0,gid={gid},mode=2770", "tmpfs", backing])
    options = ["-o", f"attr_timeout={remembers},entry_timeout={remembers}"] if remembers else []
    server = subprocess.Popen(["bindfs", "-f", *options, backing, folder])
    try:
        _await_mount(folder, server)
        yield FragileVolume(backing, folder, server)
    finally:
        server.send_signal(signal.SIGCONT)
        server.terminate()
        server.wait(timeout=10)
        subprocess.run(["umount", "--lazy", folder], capture_output=True, check=False)
        run(["umount", backing])
        backing.rmdir()


def _await_mount(folder: Path, server: subprocess.Popen[bytes]) -> None:
    for _ in range(100):
        if os.path.ismount(folder):
            return
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise HarnessError(f"bindfs does not serve {folder}: exit status {server.poll()}")
