"""`epd.manifests.desired`: all children together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.api import names
from epd.manifests import Context, collector, desired
from epd.manifests.connector_configmap import connector_name
from unit.topology.objects import ABSENT, epd

CONTEXT = Context(operator_image="op:1", preflight=True)
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
AGGREGATED: dict[str, Any] = {"encode": ABSENT}
PLAIN: dict[str, Any] = AGGREGATED | {"encoderCache": ABSENT}
SHAPES = [{}, AGGREGATED, PLAIN, {"suspend": True}]


def listed(changes: dict[str, Any], context: Context = CONTEXT) -> list[str]:
    return [f"{child['kind']}/{child['metadata']['name']}" for child in desired(epd(changes), context)]


def test_children_in_apply_order() -> None:
    job = listed({})[-1]
    assert job.startswith("Job/qwen-vl-preflight-")
    assert listed({}) == [
        "ServiceAccount/qwen-vl-engine",
        "ServiceAccount/qwen-vl-proxy",
        "Role/qwen-vl-proxy",
        "RoleBinding/qwen-vl-proxy",
        "PersistentVolumeClaim/qwen-vl-encoder-cache",
        "Service/qwen-vl",
        f"ConfigMap/{connector_name(epd(), CONTEXT)}",
        "Deployment/qwen-vl-encode",
        "Deployment/qwen-vl-prefilldecode",
        "Deployment/qwen-vl-proxy",
        job,
    ]
    assert listed(AGGREGATED) == [child for child in listed({}) if child != "Deployment/qwen-vl-encode"]
    assert listed(PLAIN) == [
        child for child in listed(AGGREGATED) if not child.startswith(("PersistentVolumeClaim/", "ConfigMap/", "Job/"))
    ]
    assert listed({}, Context(operator_image="op:1")) == listed({})[:-1]


@pytest.mark.parametrize("changes", SHAPES)
def test_every_child_is_ours_alone(changes: dict[str, Any]) -> None:
    for child in desired(epd(changes), CONTEXT):
        assert not {"status", "resourceVersion"} & (set(child) | set(child["metadata"]))
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"], owner["blockOwnerDeletion"]) == ("0-1", True, True)
        assert child["metadata"]["labels"][names.LABEL_EPD] == "qwen-vl"
        assert child["metadata"]["namespace"] == "ai"


@pytest.mark.parametrize("changes", SHAPES)
def test_plain_data_the_same_every_time(changes: dict[str, Any]) -> None:
    one, other = (json.dumps(desired(epd(changes), CONTEXT)) for _ in range(2))
    assert one == other
    assert all(type(value) in (str, int, bool) for child in desired(epd(changes), CONTEXT) for value in leaves(child))


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key, item in value.items():
            assert type(key) is str
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def template(child: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = child.get("spec", {}).get("template", {})
    return found


def test_a_caller_may_change_what_it_gets() -> None:
    before = desired(epd(), CONTEXT)
    for child in desired(epd(), CONTEXT):
        child["metadata"]["labels"].clear()
        for container in template(child).get("spec", {}).get("containers", []):
            container["securityContext"].clear()
    assert desired(epd(), CONTEXT) == before


@given(
    st.from_regex(names.NAME_PATTERN, fullmatch=True).filter(lambda name: len(name) <= names.NAME_MAX_LENGTH),
    st.from_regex(r"[A-Za-z0-9._/][A-Za-z0-9._/:@-]{0,60}", fullmatch=True),
)
def test_names_and_labels_are_valid(name: str, model: str) -> None:
    children = desired(epd({"model.name": model}, name=name), CONTEXT)
    assert len({(child["kind"], child["metadata"]["name"]) for child in children}) == len(children)
    for child in children:
        assert re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", child["metadata"]["name"])
        labels = [child["metadata"]["labels"], template(child).get("metadata", {}).get("labels", {})]
        assert all(LABEL_VALUE.fullmatch(value) for each in labels for value in each.values())


def test_a_collector_in_apply_order() -> None:
    assert [f"{child['kind']}/{child['metadata']['name']}" for child in collector([epd()], CONTEXT)] == [
        "ServiceAccount/qwen-vl-encoder-cache-collector",
        "Role/qwen-vl-encoder-cache-collector",
        "RoleBinding/qwen-vl-encoder-cache-collector",
        "Deployment/qwen-vl-encoder-cache-collector",
    ]


def test_who_asks_for_a_collector_may_change_it() -> None:
    before = collector([epd()], CONTEXT)
    for child in collector([epd()], CONTEXT):
        child["metadata"]["labels"].clear()
        child["metadata"]["ownerReferences"].clear()
    assert collector([epd()], CONTEXT) == before


def test_a_collector_is_no_child_of_one_object() -> None:
    """Or each of its users would prune what another one needs."""
    for child in collector([epd()], CONTEXT):
        labels = child["metadata"]["labels"] | template(child).get("metadata", {}).get("labels", {})
        assert names.LABEL_EPD not in labels
