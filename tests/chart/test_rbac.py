from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chart.helm import Helm, Manifest, named, the
from epd.api import names
from epd.controller.permissions import PERMISSIONS
from epd.manifests.collector_rbac import collector_access
from unit.topology.objects import epd

pytestmark = pytest.mark.chart

NAMESPACES = ["team-a", "team-b"]
NAMESPACED = {"watchNamespaces": NAMESPACES}


def granted(role: Manifest) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of every right in a role."""
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


USED = {(p.group, p.resource, verb) for p in PERMISSIONS for verb in p.verbs}


def operator_role(manifests: list[Manifest]) -> Manifest:
    (role,) = (
        role for role in named(manifests, "ClusterRole") if role["metadata"]["name"] == "epd-operator:epd-system"
    )
    return role


def all_rules(manifests: list[Manifest]) -> Iterator[dict[str, Any]]:
    for kind in ("ClusterRole", "Role"):
        for role in named(manifests, kind):
            yield from role["rules"]


def test_cluster_wide_rights_are_those_that_the_code_uses(helm: Helm) -> None:
    manifests = helm.template()
    assert granted(operator_role(manifests)) == USED
    assert named(manifests, "Role") == []
    binding = the(manifests, "ClusterRoleBinding")
    assert binding["roleRef"]["name"] == "epd-operator:epd-system"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "epd-operator", "namespace": "epd-system"}]


def test_namespaced_rights_are_those_that_the_code_uses(helm: Helm) -> None:
    manifests = helm.template(NAMESPACED)
    roles = {role["metadata"]["namespace"]: granted(role) for role in named(manifests, "Role")}
    assert roles == dict.fromkeys(NAMESPACES, USED)
    bindings = named(manifests, "RoleBinding")
    assert [b["metadata"]["namespace"] for b in bindings] == NAMESPACES
    for binding in bindings:
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("Role", "epd-operator")
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "epd-operator", "namespace": "epd-system"}]


def test_a_namespaced_operator_has_no_right_on_the_cluster(helm: Helm) -> None:
    manifests = helm.template(NAMESPACED)
    assert named(manifests, "ClusterRoleBinding") == []
    assert {role["metadata"]["name"] for role in named(manifests, "ClusterRole")} == {
        "epd-operator:epd-system:edit",
        "epd-operator:epd-system:view",
    }


@pytest.mark.parametrize("values", [{}, NAMESPACED], ids=["cluster-wide", "namespaced"])
def test_no_wildcard_and_no_secret(helm: Helm, values: dict[str, Any]) -> None:
    rules = list(all_rules(helm.template(values)))
    assert rules
    for rule in rules:
        assert rule.keys() == {"apiGroups", "resources", "verbs"}
        assert [word for key in rule for word in rule[key] if "*" in word] == []
        assert [resource for resource in rule["resources"] if resource.startswith("secrets")] == []
        assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])


def test_the_proxys_role_grants_only_what_the_operator_holds() -> None:
    # The API server refuses a Role with more (RBAC's escalation check), so the proxy would never start.
    assert {("", "pods", verb) for verb in ("get", "list", "watch")} <= USED


def test_the_collectors_role_grants_only_what_the_operator_holds() -> None:
    (role,) = (child for child in collector_access([epd()]) if child["kind"] == "Role")
    assert granted(role) <= USED


def test_people_get_their_rights_through_the_built_in_roles(helm: Helm) -> None:
    roles = {role["metadata"]["name"].rsplit(":", 1)[1]: role for role in named(helm.template(), "ClusterRole")}
    aggregated = {
        name: {label.rsplit("/", 1)[1] for label in role["metadata"]["labels"] if "aggregate-to" in label}
        for name, role in roles.items()
        if name != "epd-system"
    }
    assert aggregated == {
        "view": {"aggregate-to-view", "aggregate-to-edit", "aggregate-to-admin"},
        "edit": {"aggregate-to-edit", "aggregate-to-admin"},
    }
    reads = {"get", "list", "watch"}
    assert granted(roles["view"]) == {
        (names.GROUP, resource, verb) for resource in (names.PLURAL, f"{names.PLURAL}/status") for verb in reads
    }
    writes = {"create", "delete", "deletecollection", "patch", "update"}
    assert granted(roles["edit"]) == {(names.GROUP, names.PLURAL, verb) for verb in writes}


def test_switches(helm: Helm) -> None:
    manifests = helm.template({"rbac": {"create": False, "aggregateToUserRoles": False}})
    assert {m["kind"] for m in manifests} & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} == set()
