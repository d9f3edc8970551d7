"""A real kube-apiserver with etcd for one test session: started, spoken to, ended. Knows nothing of what tests do."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from cluster import builds, controlplane, paths, pki, processes, steps

REPO = Path(__file__).parents[2]
CRD_FILE = REPO / "crds" / "epd.dev_epddeployments.yaml"


@dataclass(frozen=True, kw_only=True)
class ApiServer:
    """One running API server.

    Attributes:
        kubeconfig: File with full rights.
        url: Base URL.
        http: Client of that URL with the same rights.
        cache: Folder for kubectl's discovery cache.
    """

    kubeconfig: Path
    url: str
    http: httpx.Client
    cache: Path

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl; CalledProcessError if it fails and `check` is set."""
        argv = [paths.tool("kubectl"), "--kubeconfig", str(self.kubeconfig), "--cache-dir", str(self.cache), *words]
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(words)}: {done.stderr}")
        return done

    def apply_crd(self, text: str, *, group: str = "epd.dev", plural: str = "epddeployments") -> None:
        """Install a CustomResourceDefinition and wait until its objects are served."""
        self.kubectl("apply", "--server-side", "-f", "-", stdin=text)
        # not `kubectl wait`, which gives up on a definition that has no status yet
        steps.until(
            "the CRD is served",
            lambda: not self.kubectl("get", f"{plural}.{group}", check=False).returncode,
            seconds=30,
        )


@dataclass(frozen=True)
class Namespace:
    """A namespace of one test."""

    server: ApiServer
    name: str

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl in the namespace."""
        return self.server.kubectl("--namespace", self.name, *words, stdin=stdin, check=check)

    def apply(self, manifest: dict[str, Any], *flags: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`kubectl apply` the manifest; `--server-side` among `flags` for the server's kind of apply."""
        return self.kubectl("apply", *flags, "-f", "-", stdin=json.dumps(manifest), check=check)

    def get(self, *words: str) -> dict[str, Any]:
        """`kubectl get WORDS -o json`, parsed."""
        return dict(json.loads(self.kubectl("get", *words, "-o", "json").stdout))

    def epds(self) -> str:
        """Path of the namespace's EPDDeployments."""
        return f"/apis/epd.dev/v1alpha1/namespaces/{self.name}/epddeployments"

    def create(self, manifest: dict[str, Any], *, dry_run: bool = False) -> httpx.Response:
        """POST an EPDDeployment under strict field validation, as kubectl does."""
        query = {"fieldValidation": "Strict"} | ({"dryRun": "All"} if dry_run else {})
        return self.server.http.post(self.epds(), params=query, json=manifest)

    def set_status(self, name: str, status: dict[str, Any]) -> None:
        """Write the status as the operator does."""
        answer = self.server.http.patch(
            f"{self.epds()}/{name}/status",
            json={"status": status},
            headers={"Content-Type": "application/merge-patch+json"},
        )
        assert answer.status_code == 200, answer.text


@contextlib.contextmanager
def running(state: Path) -> Iterator[ApiServer]:
    """An empty API server on ports of its own, with RBAC and without controllers.

    Raises HarnessError: it cannot be had on this machine.
    """
    kube = builds.kube()
    port, etcd = _free_ports()
    address = controlplane.Address(host="127.0.0.1", port=port, etcd_port=etcd)
    pki.make(state / "pki", addresses=[address.host])
    try:
        controlplane.start(kube, state=state, address=address, authorization="RBAC")
        controlplane.wait(state=state, address=address)
        config = state / "kubeconfig"
        pki.kubeconfig(config, server=address.server, pki=state / "pki")
        token = yaml.safe_load(config.read_text())["users"][0]["user"]["token"]
        with httpx.Client(
            base_url=address.server,
            verify=ssl.create_default_context(cafile=state / "pki" / "ca.crt"),
            headers={"Authorization": f"Bearer {token}"},
            timeout=30,
        ) as client:
            yield ApiServer(kubeconfig=config, url=address.server, http=client, cache=state / "kubectl")
    finally:
        for name in ("apiserver", "etcd"):
            processes.stop(name, state=state)


def _free_ports() -> tuple[int, int]:
    """A port for the API server, and one for etcd whose successor is free too: etcd takes both."""
    with socket.socket() as api:
        api.bind(("127.0.0.1", 0))
        while True:
            with socket.socket() as etcd, socket.socket() as peer, contextlib.suppress(OSError, OverflowError):
                etcd.bind(("127.0.0.1", 0))
                peer.bind(("127.0.0.1", etcd.getsockname()[1] + 1))
                return api.getsockname()[1], etcd.getsockname()[1]
