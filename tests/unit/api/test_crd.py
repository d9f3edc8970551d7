from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from epd.api.crd import _UNION_MEMBERS, PATHS, STATUS_DEFAULT, custom_resource_definition, main, openapi_schema, render
from epd.api.rules import FIELD_RULES

REPO = Path(__file__).parents[3]

Schema = dict[str, Any]


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema in `schema`, `[]` for list items and `{}` for map values."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if isinstance(values := schema.get("additionalProperties"), dict):
        yield from nodes(values, f"{path}{{}}")


ROOT = openapi_schema()
ALL = dict(nodes(ROOT))
SPEC = dict(nodes(ROOT["properties"]["spec"]))
OPEN = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"


def paths_where(wrong: Any) -> list[str]:
    return [path for path, schema in ALL.items() if wrong(schema)]


@pytest.mark.parametrize("path", PATHS)
def test_the_copies_in_the_repository_are_current(path: str) -> None:
    assert (REPO / path).read_text(encoding="utf-8") == render()


def test_size() -> None:
    # etcd takes 1.5 MB and kubectl's annotation 256 KB; 200 KB leaves room for both
    assert len(render().encode()) <= 200_000


def test_it_is_what_a_reader_of_yaml_gets() -> None:
    assert yaml.safe_load(render()) == custom_resource_definition()


def test_structural() -> None:
    """kubernetes.io: every node has a type, and logical operators hold no types of their own."""
    assert paths_where(lambda node: not ("type" in node or node.get(INT_OR_STRING) or node.get(OPEN))) == []
    assert paths_where(lambda node: {"$ref", "allOf", "oneOf", "not", "title", "const"} & set(node)) == []
    assert paths_where(lambda node: "anyOf" in node and not node.get(INT_OR_STRING)) == []
    assert paths_where(lambda node: "properties" in node and "additionalProperties" in node) == []


def test_everything_is_bounded() -> None:
    assert paths_where(lambda node: node.get("type") == "string" and "maxLength" not in node) == []
    assert paths_where(lambda node: node.get(INT_OR_STRING) and "maxLength" not in node) == []
    assert paths_where(lambda node: node.get("type") == "array" and "maxItems" not in node) == []
    assert paths_where(lambda node: "additionalProperties" in node and "maxProperties" not in node) == []


def test_lists_say_how_they_merge() -> None:
    lists = {path: node for path, node in ALL.items() if node.get("type") == "array"}
    maps = {path: node for path, node in lists.items() if node["x-kubernetes-list-type"] == "map"}

    assert {path: node["x-kubernetes-list-map-keys"] for path, node in maps.items()} == {
        "spec.engine.env": ["name"],
        "spec.encode.env": ["name"],
        "spec.prefillDecode.env": ["name"],
        "spec.imagePullSecrets": ["name"],
        "status.roles": ["name"],
        "status.encoderCache.versions": ["name"],
        "status.conditions": ["type"],
    }
    for path, node in maps.items():
        assert set(node["x-kubernetes-list-map-keys"]) <= set(node["items"]["required"]), path


def test_no_default_inside_a_union() -> None:
    inside = [
        path for path in SPEC if any(path == member or path.startswith(f"{member}.") for member in _UNION_MEMBERS)
    ]

    assert len(inside) > 100
    assert [path for path in inside if "default" in SPEC[path]] == []


def test_defaults() -> None:
    written = {path: node["default"] for path, node in ALL.items() if "default" in node}

    assert written == {
        "spec.model.dtype": "auto",
        "spec.engine.device": "Auto",
        "spec.encoderCache.connector": "Managed",
        "spec.encoderCache.hashAlgorithm": "BLAKE3",
        "spec.encoderCache.garbageCollection": {},
        "spec.encoderCache.garbageCollection.enabled": True,
        "spec.encoderCache.garbageCollection.versionGracePeriod": "1h",
        "spec.encoderCache.garbageCollection.minIdle": "30m",
        "spec.encoderCache.garbageCollection.highWatermarkPercent": 85,
        "spec.encoderCache.garbageCollection.lowWatermarkPercent": 70,
        "spec.encoderCache.garbageCollection.dryRun": False,
        "spec.encoderCache.garbageCollection.evictLiveEntries": False,
        "spec.proxy": {},
        "spec.proxy.encoderFailurePolicy": "Fallback",
        "spec.proxy.affinity": "None",
        "spec.proxy.timeouts": {},
        "spec.proxy.timeouts.request": "10m",
        "spec.proxy.timeouts.encode": "2m",
        "spec.proxy.timeouts.idle": "60s",
        "spec.proxy.timeouts.queue": "10s",
        "spec.proxy.limits": {},
        "spec.proxy.limits.maxInFlight": 1024,
        "spec.proxy.limits.maxPerEngine": 1024,
        "spec.proxy.limits.maxQueued": 256,
        "spec.proxy.limits.maxFallbackEncodes": 8,
        "spec.proxy.accessLog": {},
        "spec.proxy.accessLog.policy": "Errors",
        "spec.proxy.auth": {},
        "spec.proxy.auth.tenantIsolation": "Shared",
        "spec.proxy.auth.requestPriority": "Forward",
        "spec.proxy.service": {},
        "spec.proxy.service.type": "ClusterIP",
        "spec.proxy.media": {},
        "spec.proxy.media.maxBodySize": "64Mi",
        "spec.paused": False,
        "spec.suspend": False,
        "status": STATUS_DEFAULT,
        "status.observedGeneration": 0,
    }


def test_everything_is_described() -> None:
    named = {path: node for path, node in ALL.items() if path not in ("", "metadata") and not path.endswith(("]", "}"))}

    assert [path for path, node in named.items() if not node.get("description")] == []
    assert [path for path, node in named.items() if not node["description"].endswith(".")] == []


def test_descriptions_end_with_what_a_change_does() -> None:
    changes = {
        path: node["description"].partition(" Change: ")[2] for path, node in SPEC.items() if "description" in node
    }

    assert changes["model.dtype"] == "new cache version, rolls all roles."
    assert changes["encode.resources.limits"] == "rolls the role."
    assert changes["encoderCache.volume.volumeClaimTemplate.spec.selector"] == "refused."
    assert changes["model"] == ""  # a mere group


def test_every_rule_has_its_field() -> None:
    assert set(FIELD_RULES) - set(SPEC) == set()


def test_rules_have_a_message() -> None:
    rules = [rule for node in ALL.values() for rule in node.get("x-kubernetes-validations", ())]

    assert len(rules) > 40
    assert [rule for rule in rules if not ("message" in rule) ^ ("messageExpression" in rule)] == []
    # the API server refuses longer ones and line breaks
    assert [rule for rule in rules if len(rule.get("message", "")) > 2048 or "\n" in rule.get("message", "")] == []


def test_columns() -> None:
    (version,) = custom_resource_definition()["spec"]["versions"]
    columns = version["additionalPrinterColumns"]

    assert [column["name"] for column in columns if "priority" not in column] == [
        *("Model", "Roles", "Available", "Ready", "Reason", "URL", "Age"),
    ]
    for column in columns:
        steps = re.sub(r"\[\?\(.*?\)\]", "[]", column["jsonPath"]).removeprefix(".")
        assert steps in ALL or steps == "metadata.creationTimestamp"


def test_names() -> None:
    assert custom_resource_definition()["spec"]["names"] == {
        "kind": "EPDDeployment",
        "listKind": "EPDDeploymentList",
        "plural": "epddeployments",
        "singular": "epddeployment",
        "shortNames": ["epd"],
        "categories": ["vllm"],
    }


def test_check_finds_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert list(tmp_path.iterdir()) == []

    assert main(["--root", str(tmp_path)]) == 0
    assert main(["--check", "--root", str(tmp_path)]) == 0

    (tmp_path / PATHS[1]).write_text("other")
    capsys.readouterr()
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"{PATHS[1]}: differs; run make generate\n"
