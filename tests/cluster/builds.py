"""Builds the Kubernetes binary, the pause binary and helm from Go modules, once, and installs Debian packages.

Nothing here starts a component.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import paths
from .steps import HarnessError, cached, run, step

HELM = "v4.2.4"
KUBERNETES = "v1.35.4"
"""As in kube/go.mod. Linked in, because a chart's `kubeVersion` and clients read it from /version."""

PACKAGES: Mapping[str, str] = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables-save": "iptables",
    "ip": "iproute2",
    "sysctl": "procps",
    "openssl": "openssl",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "bindfs": "bindfs",
}
"""What the native node calls -> the Debian package that has it."""


BROWSERS: Sequence[str] = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Commands that are Chromium; the first is a Debian package of its own."""


def packages() -> None:
    """Installs what is missing of `PACKAGES`.

    Raises HarnessError: something is missing, and we are not root or apt is not there.
    """
    missing = sorted({package for command, package in PACKAGES.items() if shutil.which(command) is None})
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise HarnessError(f"the native node needs, installed by you: {' '.join(missing)}")
    _install(missing, may_take="20 s")


def browser() -> None:
    """Installs Chromium without a screen, unless one is there. Raises HarnessError as `packages` does."""
    if any(shutil.which(name) for name in BROWSERS):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise HarnessError(f"looking at pages needs one of {', '.join(BROWSERS)}, installed by you")
    _install([BROWSERS[0]], may_take="60 s")


def _install(names: Sequence[str], *, may_take: str) -> None:
    with step(f"install Debian packages: {' '.join(names)}", may_take=may_take):
        run(["apt-get", "update", "-q"])
        run(
            ["apt-get", "install", "-y", "-q", "--no-install-recommends", *names],
            env={"DEBIAN_FRONTEND": "noninteractive"},
        )


def kube() -> Path:
    """The multi-call binary of etcd, kube-apiserver and the other components (kube/main.go)."""
    source = paths.HARNESS / "kube"
    path = paths.cache() / f"kube-{paths.key([source], KUBERNETES)}"
    return cached(
        path,
        "build Kubernetes 1.35 and etcd from Go modules",
        lambda to: _go_build(source, ".", to),
        may_take="8 min cold, 20 s warm",
    )


def pause() -> Path:
    """The static binary of the pause image."""
    source = paths.HARNESS / "kube"
    path = paths.cache() / f"pause-{paths.key([source / 'pause'])}"
    return cached(path, "build the pause binary", lambda to: _go_build(source, "./pause", to), may_take="10 s")


def helm() -> Path:
    """helm, built from its Go module."""
    path = paths.cache() / f"helm-{HELM}"

    def make(to: Path) -> None:
        folder = to.with_name("helm-gobin")
        run(["go", "install", f"helm.sh/helm/v4/cmd/helm@{HELM}"], env={"GOBIN": str(folder), "CGO_ENABLED": "0"})
        (folder / "helm").rename(to)
        folder.rmdir()

    return cached(path, f"build helm {HELM} from its Go module", make, may_take="3 min cold, 15 s warm")


def _go_build(source: Path, package: str, to: Path) -> None:
    if shutil.which("go") is None:
        raise HarnessError("building Kubernetes for the native node needs Go 1.25 or later on PATH")
    _, minor, _ = KUBERNETES.split(".")
    version = {"gitVersion": KUBERNETES, "gitMajor": "1", "gitMinor": minor, "gitTreeState": "clean"}
    linked = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in version.items())
    command = ["go", "build", "-trimpath", "-ldflags", f"-s -w {linked}", "-o", str(to.resolve()), package]
    run(command, cwd=source, env={"CGO_ENABLED": "0"})
