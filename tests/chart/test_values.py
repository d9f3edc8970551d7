"""values.yaml, its schema and each other."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from chart.helm import CHART, Helm, with_image

pytestmark = pytest.mark.chart

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES_TEXT = (CHART / "values.yaml").read_text()
VALUES = yaml.safe_load(VALUES_TEXT)


def objects(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of an object, with its path."""
    types = schema.get("type", [])
    if "object" in ([types] if isinstance(types, str) else types):
        yield path or "(root)", schema
    for name, member in schema.get("properties", {}).items():
        yield from objects(member, f"{path}.{name}".lstrip("."))
    if isinstance(items := schema.get("items"), dict):
        yield from objects(items, f"{path}[]")


def test_no_object_takes_unknown_keys() -> None:
    # Objects of Kubernetes whose members are not ours to list; the API server checks them.
    kubernetes = {
        "affinity.nodeAffinity",
        "affinity.podAffinity",
        "affinity.podAntiAffinity",
        "networkPolicy.metricsFrom[].podSelector",
        "networkPolicy.metricsFrom[].namespaceSelector",
        "networkPolicy.metricsFrom[].ipBlock",
        "global",
    }
    open_objects = {path for path, schema in objects(SCHEMA) if "additionalProperties" not in schema}
    assert open_objects == kubernetes
    for path, schema in objects(SCHEMA):
        assert schema.get("additionalProperties") is not True, path


def test_schema_and_values_list_the_same_keys() -> None:
    def compare(schema: dict[str, Any], values: dict[str, Any], path: str) -> None:
        assert values.keys() <= schema["properties"].keys(), path
        for key, value in values.items():
            member = schema["properties"][key]
            if isinstance(value, dict) and value and "properties" in member:
                compare(member, value, f"{path}.{key}")

    assert SCHEMA["properties"].keys() - {"global"} == VALUES.keys()
    compare(SCHEMA, VALUES, "")


def test_each_value_is_documented() -> None:
    # Right above it, in words. The members of these three are Kubernetes' own.
    kubernetes = {"podSecurityContext", "securityContext", "resources"}
    undocumented, parent = [], ""
    for above, line in itertools.pairwise(VALUES_TEXT.splitlines()):
        if match := re.match(r"( {0,2})([A-Za-z]+):", line):
            parent = parent if match[1] else match[2]
            member_of_kubernetes = match[1] and parent in kubernetes
            if not (above.lstrip().startswith("# ") or member_of_kubernetes):
                undocumented.append(match[2])
    assert undocumented == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"replicaCount": 2}, "replicaCount"),
        ({"image": {"name": "x"}}, "name"),
        ({"image": {"repository": "registry.example.com/epd@sha256:0"}}, "/image/repository"),
        ({"image": {"tag": "a b"}}, "/image/tag"),
        ({"image": {"digest": "0123"}}, "/image/digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"image": {"pullSecrets": ["registry"]}}, "/image/pullSecrets/0"),
        ({"nameOverride": "EPD"}, "/nameOverride"),
        ({"fullnameOverride": "e" * 64}, "/fullnameOverride"),
        ({"watchNamespaces": "team-a"}, "/watchNamespaces"),
        ({"watchNamespaces": ["team-*"]}, "/watchNamespaces/0"),
        ({"watchNamespaces": ["team-a", "team-a"]}, "/watchNamespaces"),
        ({"resyncInterval": 300}, "/resyncInterval"),
        ({"resyncInterval": "5 minutes"}, "/resyncInterval"),
        ({"logLevel": "trace"}, "/logLevel"),
        ({"logFormat": "xml"}, "/logFormat"),
        ({"crds": {"enabled": "yes"}}, "/crds/enabled"),
        ({"crds": {"install": True}}, "install"),
        ({"rbac": {"aggregate": True}}, "aggregate"),
        ({"serviceAccount": {"automount": True}}, "automount"),
        ({"podSecurityContext": {"runAsUser": "root"}}, "/podSecurityContext/runAsUser"),
        ({"securityContext": {"privilege": True}}, "privilege"),
        ({"securityContext": {"capabilities": {"drop": "ALL"}}}, "/securityContext/capabilities/drop"),
        ({"resources": {"limit": {}}}, "limit"),
        ({"terminationGracePeriodSeconds": 0}, "/terminationGracePeriodSeconds"),
        ({"nodeSelector": {"gpu": True}}, "/nodeSelector/gpu"),
        ({"tolerations": [{"effect": "Never"}]}, "/tolerations/0/effect"),
        ({"affinity": {"nodeAffinty": {}}}, "nodeAffinty"),
        ({"podAnnotations": {"a": 1}}, "/podAnnotations/a"),
        ({"podLabels": {"a": "b c"}}, "/podLabels/a"),
        ({"commonLabels": {"a": "x" * 64}}, "/commonLabels/a"),
        ({"metrics": {"serviceMonitor": {"interval": "often"}}}, "/metrics/serviceMonitor/interval"),
        ({"metrics": {"podMonitor": {}}}, "podMonitor"),
        ({"networkPolicy": {"metricsFrom": [{"pods": {}}]}}, "pods"),
    ],
    ids=lambda v: json.dumps(v)[:70] if isinstance(v, dict) else "",
)
def test_wrong_values_are_refused_by_name(helm: Helm, values: dict[str, Any], says: str) -> None:
    said = helm.refusal(with_image(values))
    assert "values don't meet the specifications of the schema" in said
    assert says in said


def test_a_parent_charts_globals_are_accepted(helm: Helm) -> None:
    assert helm.template({"global": {"imageRegistry": "registry.example.com"}}) == helm.template()
