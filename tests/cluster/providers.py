"""Chooses where the cluster comes from, and brings it up whole."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

from . import builds, engine, images, kind, native, paths
from .client import Cluster
from .steps import HarnessError, run, say

PROVIDERS = ("native", "kind", "current")


def choose() -> str:
    """`EPD_CLUSTER`, or what runs already, or kind when a container engine answers, or native on Linux as root.

    Raises HarnessError: none is possible; the message says what would make one possible.
    """
    asked = os.environ.get("EPD_CLUSTER", "")
    if asked in PROVIDERS:
        return asked
    if asked:
        raise HarnessError(f"EPD_CLUSTER={asked}: must be one of {', '.join(PROVIDERS)}")
    if paths.node().exists():
        return "native"
    if kind.container_engine():
        return "kind"
    if platform.system() == "Linux" and os.geteuid() == 0:
        return "native"
    raise HarnessError(
        "no way to a cluster: start docker or podman (kind), or be root on Linux (native), "
        "or set EPD_CLUSTER=current for the cluster of your kubectl context"
    )


def connect(provider: str) -> Cluster:
    """The cluster as it is, nothing started."""
    if provider == "native":
        return Cluster(provider, native.kubeconfig(), native.volumes(), native.volumes())
    if provider == "kind":
        return Cluster(provider, kind.kubeconfig(), kind.volumes(), kind.ON_NODE)
    path = os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config"
    return Cluster(provider, Path(path), None, None)


def up(provider: str) -> Cluster:
    """The cluster running, without our images."""
    if provider == "native":
        native.up()
    elif provider == "kind":
        kind.up()
    cluster = connect(provider)
    say(f"    export KUBECONFIG={cluster.kubeconfig}")
    return cluster


def load(provider: str) -> None:
    """Our images in the cluster. On a cluster of the current context its owner loads the archives of `images`."""
    if provider == "native":
        images.load()
    elif provider == "kind":
        kind.load()


def down(provider: str) -> list[str]:
    """Takes the cluster away and returns leftovers in words. A cluster of the current context is left as it is."""
    return native.down() if provider == "native" else kind.down() if provider == "kind" else []


def running(provider: str) -> bool:
    """Whether the cluster answers."""
    if provider == "native":
        return native.running()
    if provider == "kind":
        return kind.running()
    try:
        run([paths.tool("kubectl"), "--kubeconfig", connect(provider).kubeconfig, "get", "--raw", "/readyz"])
    except (HarnessError, subprocess.TimeoutExpired):
        return False
    return True


def build(provider: str) -> None:
    """Makes what is expensive, without starting anything."""
    if provider == "native":
        builds.packages()
        builds.kube()
        builds.pause()
        engine.environment()
    builds.helm()


def ensure() -> Cluster:
    """The cluster up with our images loaded: what an end-to-end test begins with. Quick when it is all there."""
    provider = choose()
    cluster = up(provider)
    load(provider)
    return cluster
