"""What tests and the demo hold of a cluster: its commands, namespaces, volumes and addresses."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import builds, filling, paths
from .steps import HarnessError, run, until

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
MODEL = paths.REPO / "tests" / "models" / "tinyvlm" / "model"
BY_HAND = "test.epd.dev/made-by-hand"
SHARED: Sequence[str] = ("ReadWriteMany", "ReadOnlyMany")


@dataclass(frozen=True)
class Cluster:
    """A running cluster with the images loaded.

    `volumes` is the folder on this machine that holds hostPath volumes and `on_node` the same folder as the node sees
    it; both None on a cluster of the current context.
    """

    provider: str
    kubeconfig: Path
    volumes: Path | None
    on_node: Path | None

    def kubectl(self, *words: str | Path, stdin: str | None = None, timeout: float | None = None) -> str:
        """Runs kubectl and returns its output.

        Raises HarnessError: it failed; the message has what it said.
        """
        command = [paths.tool("kubectl"), "--kubeconfig", self.kubeconfig, *words]
        return run(command, stdin=stdin, timeout=timeout)

    def helm(self, *words: str | Path, timeout: float | None = None) -> str:
        """Runs helm and returns its output. Raises HarnessError as `kubectl` does."""
        return run([builds.helm(), *words], env={"KUBECONFIG": str(self.kubeconfig)}, timeout=timeout)

    def get(self, *words: str) -> Any:
        """`kubectl get WORDS -o json`, parsed."""
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Applies objects, server-side."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(listed))

    @contextmanager
    def namespace(self, prefix: str = "epd-test", *, labels: Mapping[str, str] = RESTRICTED) -> Iterator[str]:
        """A new namespace that enforces the restricted Pod Security Standard.

        At the end it is deleted, and waited for, with the volumes that `make_volume` made for its claims.
        """
        name = f"{prefix}-{secrets.token_hex(3)}"
        metadata = {"name": name, "labels": dict(labels)}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        try:
            yield name
        finally:
            self.kubectl("delete", "namespace", name, "--wait", "--timeout=180s", timeout=200)
            for volume in self.get("persistentvolumes", "-l", BY_HAND)["items"]:
                if volume["spec"].get("claimRef", {}).get("namespace") == name:
                    self.delete_volume(volume["metadata"]["name"])

    def make_volume(
        self,
        name: str,
        *,
        size: str = "1Gi",
        modes: Sequence[str] = ("ReadWriteMany",),
        owner: tuple[int, int] = (0, 1000),
        mode: int = 0o2770,
        claim: tuple[str, str] | None = None,
    ) -> Path:
        """Makes a PersistentVolume (class "") by hand and returns its folder on this machine.

        The defaults are what an administrator prepares on an export for engines of gid 1000. `owner=(0, 0),
        mode=0o755` is one that they can't write. `claim`: namespace and name of the only claim that may bind it.
        Delete both with `delete_volume`.
        """
        folder = self._volumes() / name
        folder.mkdir()
        os.chown(folder, *owner)
        folder.chmod(mode)
        spec: dict[str, Any] = {
            "accessModes": list(modes),
            "capacity": {"storage": size},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "hostPath": {"path": str(Path(self.on_node or "") / name), "type": "Directory"},
        }
        if claim:
            spec["claimRef"] = {"namespace": claim[0], "name": claim[1]}
        metadata = {"name": name, "labels": {BY_HAND: "true"}}
        self.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})
        return folder

    def bring_claim(self, namespace: str, name: str, *, size: str = "1Gi") -> None:
        """Makes the claim that a volume of `make_volume(..., claim=(namespace, name))` waits for."""
        spec = {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "resources": {"requests": {"storage": size}},
        }
        metadata = {"name": name, "namespace": namespace}
        self.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})

    def delete_volume(self, name: str) -> None:
        """Deletes a volume of `make_volume` and its folder."""
        self.kubectl("delete", "persistentvolume", name, "--ignore-not-found", "--wait=false")
        shutil.rmtree(self._volumes() / name, ignore_errors=True)

    def model_claim(self, namespace: str, *, name: str = "tinyvlm", model: Path = MODEL) -> None:
        """Makes the claim `name` with a copy of `model`, readable to gid 1000; made again, it takes the new files.

        On a cluster of the current context a pod of the operator's image fills a claim of the default class.
        """
        if self.volumes is None:
            filling.fill(self, namespace, name=name, source=model)
            return
        volume = f"{namespace}-{name}"
        folder = self.volumes / volume
        if not folder.exists():
            self.make_volume(volume, modes=SHARED, mode=0o2750, claim=(namespace, name))
        for file in model.iterdir():
            shutil.copyfile(file, folder / file.name)
            os.chown(folder / file.name, 0, 1000)
            (folder / file.name).chmod(0o640)
        spec = {
            "accessModes": list(SHARED),
            "storageClassName": "",
            "volumeName": volume,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        metadata = {"name": name, "namespace": namespace}
        self.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})

    def claim_folder(self, namespace: str, claim: str) -> Path:
        """The folder on this machine that holds the files of a bound claim."""
        volume = self.get("persistentvolumeclaim", claim, "-n", namespace)["spec"]["volumeName"]
        path = self.get("persistentvolume", volume)["spec"]["hostPath"]["path"]
        return self._volumes() / Path(path).name

    @contextmanager
    def service_url(self, namespace: str, service: str, *, port: int = 80) -> Iterator[str]:
        """URL of a Service from this machine: its cluster IP through kube-proxy, else a port-forward."""
        address = self.get("service", service, "-n", namespace)["spec"]["clusterIP"]
        if self.provider == "native":
            yield f"http://{address}:{port}"
            return
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            local = probe.getsockname()[1]
        command = [paths.tool("kubectl"), "--kubeconfig", str(self.kubeconfig), "port-forward", "-n", namespace]
        forward = subprocess.Popen([*command, f"service/{service}", f"{local}:{port}"], stdout=subprocess.DEVNULL)
        try:
            until("port-forward", lambda: _open(local), seconds=20)
            yield f"http://127.0.0.1:{local}"
        finally:
            forward.terminate()
            forward.wait()

    def wait_gone(self, kind: str, name: str, namespace: str, *, seconds: float = 120) -> None:
        """Waits until an object is gone. Raises HarnessError: it is still there."""
        words = ("get", kind, name, "-n", namespace, "--ignore-not-found", "-o", "name")
        until(f"{kind}/{name} gone", lambda: not self.kubectl(*words), seconds=seconds, every=0.5)

    def describe(self, namespace: str) -> str:
        """For failed tests: objects, events and the last lines of every pod's log."""

        def attempt(*words: str) -> str:
            try:
                return self.kubectl(*words, "-n", namespace)
            except HarnessError as error:
                return str(error)

        parts = [attempt("get", kind, "-o", "wide") for kind in ("epd", "deploy,pod,pvc,job")]
        parts.append(attempt("get", "events", "--sort-by=.lastTimestamp"))
        for pod in self.get("pods", "-n", namespace)["items"]:
            name = pod["metadata"]["name"]
            parts.append(f"--- {name}\n{attempt('logs', name, '--all-containers', '--tail=40', '--prefix')}")
        return "\n".join(parts)

    def _volumes(self) -> Path:
        if self.volumes is None:
            raise HarnessError("the cluster of the current context keeps its volumes where we can't reach them")
        return self.volumes


def _open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        time.sleep(0.1)
        return False
    return True
