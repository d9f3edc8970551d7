"""Calls the helm binary on the project's chart; no test logic, and no cluster unless a kubeconfig is given."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster import builds, paths

CHART = paths.REPO / "charts" / "epd-operator"
REPOSITORY = "registry.example.com/epd-operator"
"""The one value without a default."""

Values = Mapping[str, Any]
Manifest = dict[str, Any]


def find() -> Path | None:
    """The helm binary: of the variable HELM, built by the harness, on PATH, or built now if there is Go. Else None."""
    if named := os.environ.get("HELM"):
        return Path(named)
    if (built := paths.cache() / f"helm-{builds.HELM}").exists():
        return built
    if on_path := shutil.which("helm"):
        return Path(on_path)
    return builds.helm() if shutil.which("go") else None


@dataclass(frozen=True)
class Result:
    """What one call of helm came to."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, kw_only=True)
class Helm:
    """One helm binary, with its caches in `home`, and on the cluster of `kubeconfig` where one is given."""

    binary: Path
    home: Path
    kubeconfig: Path | None = None
    chart: Path = CHART

    def call(self, *args: str, values: Values | None = None, check: bool = True) -> Result:
        """Runs helm; `values` go in as a file on stdin. AssertionError: it failed and `check` is set."""
        command = [str(self.binary), *args, *(["--values", "-"] if values is not None else [])]
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        environment["KUBECONFIG"] = str(self.kubeconfig) if self.kubeconfig else os.devnull
        given = json.dumps(values) if values is not None else None
        done = subprocess.run(command, input=given, env=environment, capture_output=True, text=True, timeout=300)
        result = Result(done.returncode, done.stdout, done.stderr)
        assert not check or result.code == 0, f"helm {' '.join(args)}\n{result.stdout}\n{result.stderr}"
        return result

    def template(
        self, values: Values | None = None, *flags: str, release: str = "epd-operator", namespace: str = "epd-system"
    ) -> list[Manifest]:
        """The objects that an install would make, in helm's order."""
        command = ("template", release, str(self.chart), "--namespace", namespace, *flags)
        rendered = _rendered(self, command, json.dumps(with_image(values), sort_keys=True))
        return [document for document in yaml.load_all(rendered, yaml.CSafeLoader) if document]

    def refusal(self, values: Values, *flags: str) -> str:
        """What helm says of values that it must refuse."""
        command = ("template", "epd-operator", str(self.chart), "--namespace", "epd-system", *flags)
        result = self.call(*command, values=values, check=False)
        assert result.code != 0, f"{values} was accepted"
        return result.stderr

    def notes(self, values: Values | None = None) -> str:
        """NOTES.txt as an install prints it."""
        command = ("install", "epd-operator", str(self.chart), "--namespace", "epd-system", "--dry-run=client")
        return self.call(*command, values=with_image(values)).stdout.split("NOTES:\n", 1)[1]


@functools.cache
def _rendered(helm: Helm, command: tuple[str, ...], values: str) -> str:
    # Many tests look at the same objects; one call of helm takes 0.2 s.
    return helm.call(*command, values=json.loads(values)).stdout


def with_image(values: Values | None) -> Values:
    """`values` with an image repository, unless they name one."""
    given = dict(values or {})
    return given | {"image": {"repository": REPOSITORY} | dict(given.get("image", {}))}


def named(manifests: Sequence[Manifest], kind: str) -> list[Manifest]:
    """All objects of a kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def the(manifests: Sequence[Manifest], kind: str) -> Manifest:
    """The only object of a kind."""
    (only,) = named(manifests, kind)
    return only
