from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chart.helm import Helm, find
from chart.live import Live
from chart.matrix import MATRIX
from cluster import HarnessError, builds, controlplane, pki, processes


def missing(reason: str) -> None:
    """Skips with the reason; where nothing may be skipped, fails with it."""
    if os.environ.get("EPD_NO_SKIP"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    binary = find()
    if binary is None:
        missing("no helm: set HELM, put helm on PATH, or install Go so that it can be built")
    return Helm(binary=binary, home=tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An API server of our own: these tests install and delete what the other tests of the API rely on."""
    try:
        kube = builds.kube()
    except HarnessError as error:
        missing(f"no kube-apiserver: {error}")
    state = tmp_path_factory.mktemp("control-plane")
    port, etcd = free_ports()
    address = controlplane.Address(host="127.0.0.1", port=port, etcd_port=etcd)
    pki.make(state / "pki", addresses=[address.host])
    try:
        controlplane.start(kube, state=state, address=address, authorization="RBAC")
        controlplane.wait(state=state, address=address)
        config = state / "kubeconfig"
        pki.kubeconfig(config, server=address.server, pki=state / "pki")
        yield config
    finally:
        for name in ("apiserver", "etcd"):
            processes.stop(name, state=state)


def free_ports() -> tuple[int, int]:
    """Ports for the API server and for etcd, which also takes the one above its own."""
    with socket.socket() as api:
        api.bind(("127.0.0.1", 0))
        while True:
            with socket.socket() as etcd, socket.socket() as peer, contextlib.suppress(OSError, OverflowError):
                etcd.bind(("127.0.0.1", 0))
                peer.bind(("127.0.0.1", etcd.getsockname()[1] + 1))
                return api.getsockname()[1], etcd.getsockname()[1]


@pytest.fixture
def live(helm: Helm, kubeconfig: Path) -> Iterator[Live]:
    """helm and kubectl on the API server, which is empty before and after."""
    server = Live(helm=replace(helm, kubeconfig=kubeconfig), kubeconfig=kubeconfig)
    yield server
    server.clear()


@pytest.fixture(params=MATRIX.values(), ids=MATRIX)
def values(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param
