"""The provider for machines with a container engine: kind.

It builds the same images from the Dockerfiles and mounts one folder of this machine as the node's volumes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import engine, images, paths, processes
from .steps import HarnessError, cached, run, step

NAME = "epd-test"
KIND = "v0.33.0"
ON_NODE = Path("/volumes")


def container_engine() -> str | None:
    """`docker` or `podman`, whichever answers."""
    for name in ("docker", "podman"):
        if shutil.which(name):
            try:
                answer = subprocess.run([name, "info"], capture_output=True, timeout=10, check=False)
            except subprocess.TimeoutExpired:
                continue
            if answer.returncode == 0:
                return name
    return None


def _state() -> Path:
    return paths.state() / "kind"


def kubeconfig() -> Path:
    """The administrator's kubeconfig."""
    return _state() / "kubeconfig"


def volumes() -> Path:
    """Folder of the hostPath volumes on this machine."""
    return _state() / "volumes"


def running() -> bool:
    """Whether kind knows the cluster and its provisioner lives."""
    return NAME in run([_kind(), "get", "clusters"], env=_environment()).split() and processes.alive(
        "provisioner", state=_state()
    )


def up() -> Path:
    """Makes the cluster and returns its kubeconfig."""
    kind = _kind()
    volumes().mkdir(parents=True, exist_ok=True)
    if NAME not in run([kind, "get", "clusters"], env=_environment()).split():
        mount = {"hostPath": str(volumes()), "containerPath": str(ON_NODE)}
        config = {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4"}
        nodes = {"nodes": [{"role": "control-plane", "extraMounts": [mount]}]}
        (_state() / "kind.json").write_text(json.dumps(config | nodes))
        with step(f"create kind cluster {NAME}", may_take="3 min"):
            command = [kind, "create", "cluster", "--name", NAME, "--config", _state() / "kind.json", "--wait", "3m"]
            run([*command, "--kubeconfig", kubeconfig()], env=_environment())
    with step("storage classes and their provisioner"):
        kubectl = [paths.tool("kubectl"), "--kubeconfig", kubeconfig()]
        run([*kubectl, "delete", "storageclass", "standard", "--ignore-not-found"])  # kind's default: no RWX
        run([*kubectl, "apply", "-f", paths.HARNESS / "storage.yaml"])
        command = [sys.executable, "-m", "cluster.provisioner", kubeconfig(), volumes(), ON_NODE]
        processes.start("provisioner", command, state=_state(), env={"PYTHONPATH": str(paths.HARNESS.parent)})
    return kubeconfig()


def load() -> None:
    """Builds the images with the container engine and loads them into the node."""
    container = container_engine()
    if container is None:
        raise HarnessError("kind needs docker or podman, and neither answers")
    recipe = paths.HARNESS / "engine.Dockerfile"
    for tag, dockerfile, may_take in ((images.OPERATOR, "Dockerfile", "2 min"), (images.ENGINE, recipe, "10 min")):
        with step(f"build and load {tag}", may_take=may_take):
            version = ["--build-arg", f"VERSION={engine.VERSION}"] if dockerfile == recipe else []
            run([container, "build", "--tag", tag, "--file", dockerfile, *version, "."], cwd=paths.REPO)
            run([_kind(), "load", "docker-image", tag, "--name", NAME], env=_environment())


def down() -> list[str]:
    """Deletes the cluster; nothing is left that we know of."""
    processes.stop("provisioner", state=_state())
    with step(f"delete kind cluster {NAME}", may_take="20 s"):
        run([_kind(), "delete", "cluster", "--name", NAME, "--kubeconfig", kubeconfig()], env=_environment())
    shutil.rmtree(_state(), ignore_errors=True)
    return []


def _environment() -> dict[str, str]:
    name = container_engine()
    return {"KIND_EXPERIMENTAL_PROVIDER": name} if name == "podman" else {}


def _kind() -> Path | str:
    if found := shutil.which("kind"):
        return found

    def make(to: Path) -> None:
        folder = to.with_name("kind-gobin")
        run(["go", "install", f"sigs.k8s.io/kind@{KIND}"], env={"GOBIN": str(folder)})
        os.replace(folder / "kind", to)

    return cached(paths.cache() / f"kind-{KIND}", f"build kind {KIND} from its Go module", make, may_take="1 min")
