"""Installs the operator as people do: with helm, from the chart of this clone, with the image that is loaded."""

from __future__ import annotations

from cluster import paths
from cluster.client import Cluster
from cluster.images import OPERATOR

NAMESPACE = "epd-system"


def install(cluster: Cluster) -> None:
    """`helm upgrade --install`, waited for. Raises HarnessError: it failed."""
    repository, _, tag = OPERATOR.rpartition(":")
    image = {"repository": repository, "tag": tag, "pullPolicy": "Never"}
    sets = [word for key, value in image.items() for word in ("--set", f"image.{key}={value}")]
    where = ["--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout", "3m"]
    cluster.helm("upgrade", "--install", "epd-operator", paths.REPO / "charts" / "epd-operator", *where, *sets)
