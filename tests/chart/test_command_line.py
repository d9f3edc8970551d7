"""The operator's command line as the chart writes it."""

from __future__ import annotations

from typing import Any

import pytest

import epd
from chart.helm import REPOSITORY, Helm, Manifest, the
from chart.matrix import DIGEST, EVERYTHING
from epd.controller.main import build_parser, read_options

pytestmark = pytest.mark.chart


def container_of(manifests: list[Manifest]) -> Manifest:
    (container,) = the(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    return container


def test_command_line_by_default(helm: Helm) -> None:
    container = container_of(helm.template())
    assert container["command"] == ["epd-operator"]
    assert container["args"] == [
        f"--operator-image={REPOSITORY}:{epd.__version__}",
        "--operator-image-pull-policy=IfNotPresent",
        "--metrics-port=8080",
        "--health-port=8081",
        "--resync-interval=5m",
        "--log-level=info",
        "--log-format=text",
    ]


def test_command_line_with_everything(helm: Helm) -> None:
    container = container_of(helm.template(EVERYTHING))
    image = f"registry.example.com:5000/team/epd:edge@{DIGEST}"
    assert (container["image"], container["imagePullPolicy"]) == (image, "Always")
    assert container["args"] == [
        "--namespace=team-a",
        "--namespace=team-b",
        f"--operator-image={image}",
        "--operator-image-pull-policy=Always",
        "--metrics-port=8080",
        "--health-port=8081",
        "--resync-interval=90s",
        "--log-level=debug",
        "--log-format=json",
    ]


def test_the_operator_understands_its_command_line(helm: Helm, values: dict[str, Any]) -> None:
    container = container_of(helm.template(values))
    options, level, log_format = read_options(build_parser(), container["args"])
    assert list(options.namespaces) == values.get("watchNamespaces", [])
    assert options.operator_image == container["image"]
    assert options.operator_image_pull_policy == container["imagePullPolicy"]
    assert options.resync == (90 if values is EVERYTHING else 300)
    assert (level, log_format) == (values.get("logLevel", "info"), values.get("logFormat", "text"))
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"metrics": options.metrics_port, "health": options.health_port}
