"""Runs etcd and kube-apiserver, alone for tests of the API, or as the lower half of the native node."""

from __future__ import annotations

import shutil
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from ssl import create_default_context

from . import builds, paths, pki, processes
from .steps import HarnessError, step, until

SERVICES = "10.86.0.0/16"
KUBERNETES_SERVICE = "10.86.0.1"


@dataclass(frozen=True)
class Address:
    """Where one control plane listens."""

    host: str
    port: int
    etcd_port: int

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{self.host}:{self.port}"


ALONE = Address(host="127.0.0.1", port=6543, etcd_port=2579)
"""Apart from the node's 6443 and 2479, so that both can run."""


def up(*, controllers: bool = False) -> Path:
    """Starts the stand-alone control plane, empty, and returns its kubeconfig. A running one is kept as it is.

    `controllers`: also kube-controller-manager: garbage collection, Deployments, namespaces; no pod ever runs.
    """
    kube, state = builds.kube(), paths.control_plane()
    config = state / "kubeconfig"
    with step("start etcd and kube-apiserver", may_take="5 s"):
        if not processes.alive("apiserver", state=state):
            down()
            pki.make(state / "pki", addresses=[ALONE.host, KUBERNETES_SERVICE])
            start(kube, state=state, address=ALONE, authorization="RBAC")
            pki.kubeconfig(config, server=ALONE.server, pki=state / "pki")
        wait(state=state, address=ALONE)
        if controllers:
            start_controllers(kube, state=state, kubeconfig=config)
    return config


def down() -> None:
    """Ends the stand-alone control plane and removes its state."""
    state = paths.control_plane()
    for name in ("controller-manager", "apiserver", "etcd"):
        processes.stop(name, state=state)
    if state.exists():
        shutil.rmtree(state)


def start(kube: Path, *, state: Path, address: Address, authorization: str, more: Sequence[str] = ()) -> None:
    """Starts etcd and kube-apiserver without waiting. `more`: further flags of the API server."""
    client, peer = (f"http://127.0.0.1:{address.etcd_port + offset}" for offset in (0, 1))
    etcd = ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
    etcd += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}", "--data-dir", "etcd"]
    # A test cluster dies with its machine: without fsync a write takes 1 ms instead of 10
    processes.start("etcd", [kube, "etcd", *etcd, "--unsafe-no-fsync"], state=state)
    keys = state / "pki"
    api = ["--etcd-servers", client, "--bind-address", address.host, "--secure-port", str(address.port)]
    api += ["--tls-cert-file", f"{keys}/apiserver.crt", "--tls-private-key-file", f"{keys}/apiserver.key"]
    api += ["--token-auth-file", f"{keys}/tokens.csv", "--authorization-mode", authorization]
    api += ["--service-account-issuer", "https://kubernetes.default.svc"]
    api += ["--service-account-key-file", f"{keys}/sa.pub", "--service-account-signing-key-file", f"{keys}/sa.key"]
    api += ["--service-cluster-ip-range", SERVICES, "--endpoint-reconciler-type", "lease"]
    processes.start("apiserver", [kube, "apiserver", *api, *more], state=state)


def start_controllers(kube: Path, *, state: Path, kubeconfig: Path, more: Sequence[str] = ()) -> None:
    """Starts kube-controller-manager. `more`: further flags."""
    keys = state / "pki"
    flags = ["--kubeconfig", str(kubeconfig), "--service-account-private-key-file", f"{keys}/sa.key"]
    flags += ["--root-ca-file", f"{keys}/ca.crt", "--use-service-account-credentials", "--leader-elect=false"]
    flags += ["--secure-port", "0", *more]
    processes.start("controller-manager", [kube, "controller-manager", *flags], state=state)


def wait(*, state: Path, address: Address) -> None:
    """Waits until the API server is ready.

    Raises HarnessError: it is not within 60 s, or ended; the message has the end of its log.
    """
    context = create_default_context(cafile=str(state / "pki" / "ca.crt"))

    def ready() -> bool:
        for name in ("etcd", "apiserver"):
            if not processes.alive(name, state=state):
                raise HarnessError(f"{name} ended:\n{processes.log_tail(name, state=state)}")
        try:
            with urllib.request.urlopen(f"{address.server}/readyz", context=context, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    until("kube-apiserver ready", ready, seconds=60)
