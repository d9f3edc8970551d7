from __future__ import annotations

from typing import Any

import pytest

from epd.api.names import Role
from epd.manifests import Context
from epd.manifests.connector_configmap import config_map_of, connector_configmap, connector_name
from epd.manifests.role_deployment import pod_template
from unit.topology.objects import ABSENT, epd

SOURCES = {"__init__.py": "", "managed.py": "class ManagedECConnector: ..."}
CONTEXT = Context(operator_image="op:1", connector_sources=SOURCES)
NEXT = Context(operator_image="op:2", connector_sources=SOURCES | {"managed.py": "class ManagedECConnector: pass"})


def test_it_holds_the_sources_and_cannot_be_changed() -> None:
    (child,) = connector_configmap(epd(), CONTEXT)
    assert (child["kind"], child["immutable"], child["data"]) == ("ConfigMap", True, SOURCES)
    assert child["metadata"]["labels"]["app.kubernetes.io/component"] == "connector"


@pytest.mark.parametrize("changes", [{"encoderCache.connector": "Example"}, {"encode": ABSENT, "encoderCache": ABSENT}])
def test_other_connectors_have_none(changes: dict[str, Any]) -> None:
    assert connector_configmap(epd(changes), CONTEXT) == ()


def test_another_release_has_another_name_and_another_image_alone_has_not() -> None:
    same = Context(operator_image="op:2", connector_sources=dict(reversed(SOURCES.items())))
    assert connector_name(epd(), CONTEXT) == connector_name(epd(), same)
    assert connector_name(epd(), CONTEXT) != connector_name(epd(), NEXT)
    assert connector_name(epd(), CONTEXT).startswith("qwen-vl-connector-")


@pytest.mark.parametrize("role", [Role.ENCODE, Role.PREFILL_DECODE])
def test_a_pod_tells_which_one_it_needs(role: Role) -> None:
    """What a kept rendering names must outlive the release that made it."""
    kept, rendered = (pod_template(epd(), role, context)["spec"] for context in (CONTEXT, NEXT))
    assert config_map_of(kept) == connector_name(epd(), CONTEXT)
    assert config_map_of(rendered) == connector_name(epd(), NEXT)


def test_pods_that_need_none() -> None:
    example = pod_template(epd({"encoderCache.connector": "Example"}), Role.ENCODE, CONTEXT)["spec"]
    assert config_map_of(example) is None
    assert config_map_of({"containers": []}) is None
    assert config_map_of({"volumes": [{"name": "connector", "emptyDir": {}}, {"name": "a", "configMap": {}}]}) is None
