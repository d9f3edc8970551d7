"""What the end-to-end tests share: the node, the operator as helm installs it, and one E|PD deployment."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import Cluster, HarnessError, ensure, paths
from cluster.deployed import Deployed

EXAMPLES = paths.REPO / "examples"
CHART = paths.REPO / "charts" / "epd-operator"
OPERATOR_NAMESPACE = "epd-system"
IMAGE = (
    "--set",
    "image.repository=localhost/epd-operator",
    "--set",
    "image.tag=dev",
    "--set",
    "image.pullPolicy=Never",
)

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The node with its images; a reason to skip where there can be none, unless nothing may be skipped."""
    try:
        return ensure()
    except HarnessError as error:
        if os.environ.get("EPD_NO_SKIP"):
            raise
        pytest.skip(f"no cluster: {error}")


@pytest.fixture(scope="session")
def upgrade_operator(cluster: Cluster) -> Callable[..., None]:
    """`helm upgrade --install` of the operator with further arguments."""

    def upgrade(*more: str) -> None:
        where = ("--namespace", OPERATOR_NAMESPACE, "--create-namespace", "--wait", "--timeout", "180s")
        cluster.helm("upgrade", "--install", "epd-operator", CHART, *where, *IMAGE, *more)

    return upgrade


@pytest.fixture(scope="session")
def operator(upgrade_operator: Callable[..., None]) -> None:
    """The operator, installed cluster-wide by helm."""
    upgrade_operator()


def example(name: str) -> dict[str, Any]:
    """One of the examples, parsed."""
    return dict(yaml.safe_load((EXAMPLES / name).read_text()))


@pytest.fixture
def demo_manifest() -> dict[str, Any]:
    """examples/01-cpu-demo.yaml."""
    return example("01-cpu-demo.yaml")


@pytest.fixture(scope="session")
def namespace(cluster: Cluster, operator: None) -> Iterator[str]:
    """A namespace of the restricted Pod Security Standard with the tiny model's claim."""
    with cluster.namespace("epd-e2e") as name:
        cluster.model_claim(name)
        yield name
    cluster.delete_volume(f"{name}-tinyvlm")


@pytest.fixture(scope="session")
def epd(cluster: Cluster, namespace: str) -> Iterator[Deployed]:
    """The demo's deployment, Ready before each test that asks for it first, and gone at the end."""
    manifest = example("01-cpu-demo.yaml")
    deployed = Deployed(cluster.kubectl, namespace, manifest["metadata"]["name"])
    deployed.apply(manifest)
    deployed.wait_ready()
    yield deployed
    deployed.run("delete", "epd", deployed.name, "--cascade=foreground", "--timeout=180s")


@pytest.fixture
def store(cluster: Cluster, epd: Deployed) -> Path:
    """The encoder cache's files."""
    return cluster.claim_folder(epd.namespace, epd.get()["status"]["encoderCache"]["claim"])


@pytest.fixture(scope="module")
def aggregated(cluster: Cluster, namespace: str) -> Iterator[Deployed]:
    """The demo without its encoders."""
    manifest = copy.deepcopy(example("01-cpu-demo.yaml"))
    manifest["metadata"]["name"] = "aggregated"
    del manifest["spec"]["encode"]
    deployed = Deployed(cluster.kubectl, namespace, "aggregated")
    deployed.apply(manifest)
    deployed.wait_ready()
    yield deployed
    deployed.run("delete", "epd", deployed.name, "--cascade=foreground", "--timeout=180s")


@pytest.fixture
def aggregated_store(cluster: Cluster, aggregated: Deployed) -> Path:
    """The aggregated deployment's encoder cache."""
    return cluster.claim_folder(aggregated.namespace, aggregated.get()["status"]["encoderCache"]["claim"])


@pytest.fixture
def scratch(cluster: Cluster, namespace: str) -> Iterator[Deployed]:
    """A name to use and throw away."""
    deployed = Deployed(cluster.kubectl, namespace, f"scratch-{next(_numbers)}")
    yield deployed
    deployed.run("delete", "epd", deployed.name, "--cascade=foreground", "--ignore-not-found", "--timeout=120s")
    deployed.run("delete", "pvc", "-l", f"epd.dev/name={deployed.name}", "--ignore-not-found", "--timeout=60s")
