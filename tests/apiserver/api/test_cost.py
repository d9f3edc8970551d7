"""The estimated cost of the CEL rules keeps a distance from the limits, which newer API servers may count nearer."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from apiserver.server import CRD_FILE, ApiServer

pytestmark = pytest.mark.apiserver

PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "cost.epd.dev"


def exaggerated(factor: int) -> dict[str, Any]:
    """The CustomResourceDefinition, under another name, with every bound on lists and maps times `factor`."""
    crd: dict[str, Any] = yaml.safe_load(CRD_FILE.read_text())
    crd["metadata"]["name"] = f"epddeployments.{GROUP}"
    crd["spec"]["group"] = GROUP
    _multiply(crd, factor)
    return crd


def _multiply(node: object, factor: int) -> None:
    if isinstance(node, dict):
        for bound in ("maxItems", "maxProperties"):
            if isinstance(node.get(bound), int):
                node[bound] *= factor
        for child in node.values():
            _multiply(child, factor)
    elif isinstance(node, list):
        for child in node:
            _multiply(child, factor)


def test_twice_the_lists_would_still_be_accepted(api_server: ApiServer) -> None:
    answer = api_server.http.post(PATH, params={"dryRun": "All"}, json=exaggerated(2))

    assert answer.status_code == 201, answer.text


def test_the_costliest_rule_takes_less_than_half_of_its_budget(api_server: ApiServer) -> None:
    factor = 16

    answer = api_server.http.post(PATH, params={"dryRun": "All"}, json=exaggerated(factor))

    assert answer.status_code == 422, answer.text
    over = [float(times) for times in re.findall(r"exceeds budget by factor of ([\d.]+)x", answer.json()["message"])]
    print(f"share of the budget per rule: {sorted(round(times / factor, 3) for times in over)}")
    assert over
    assert max(over) / factor < 0.5
