from __future__ import annotations

import copy
from typing import Any

import pytest

from apiserver.controller.objects import SPEC, collectors, condition, epd, roll_out, settled, versions
from apiserver.controller.operator import Operator, eventually
from apiserver.server import Namespace
from epd.api import names

pytestmark = pytest.mark.apiserver

VOLUME = {"persistentVolumeClaim": {"claimName": "shared"}}
COLLECTOR = "shared-collector"


def brought(name: str = "qwen", **cache: Any) -> dict[str, Any]:
    spec = {**copy.deepcopy(SPEC), "encoderCache": {"volume": VOLUME, **cache}}
    return epd(spec, name=name)


def brought_up(namespace: Namespace, operator: Operator, *objects: dict[str, Any]) -> None:
    """The claim, the objects with their engines, and the collector."""
    spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}}
    namespace.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared"}, "spec": spec})
    for each in objects:
        namespace.apply(each)
    wanted = {f"deployment.apps/{each['metadata']['name']}-prefilldecode" for each in objects}
    wanted |= {f"serviceaccount/{each['metadata']['name']}-proxy" for each in objects}
    eventually(
        lambda: wanted <= set(namespace.kubectl("get", "deployments,sa", "-o", "name").stdout.split()),
        about=operator.log.read_text,
    )
    settled(namespace, operator)
    roll_out(namespace)
    eventually(lambda: set(collectors(namespace)) == {COLLECTOR}, about=operator.log.read_text)


def finalizers(namespace: Namespace) -> list[str]:
    return list(namespace.get("epd", "qwen")["metadata"].get("finalizers", []))


def gone(namespace: Namespace) -> bool:
    return "epd" not in namespace.kubectl("get", "epd", "qwen", "-o", "name", check=False).stdout


def events(namespace: Namespace) -> list[str]:
    return [e["reason"] for e in namespace.get("events")["items"]]


def test_two_users_share_one_collector_and_its_second_reconcile_writes_nothing(
    operator: Operator, namespace: Namespace
) -> None:
    brought_up(namespace, operator, brought("a"), brought("b"))
    eventually(lambda: sorted(collectors(namespace)[COLLECTOR]) == ["a", "b"], about=operator.log.read_text)
    owners = namespace.get("role", COLLECTOR)["metadata"]["ownerReferences"]
    assert [owner.get("controller", False) for owner in owners] == [False, False]
    for user in ("a", "b"):
        eventually(lambda: condition(namespace, "EncoderCacheHealthy", name=user) == ("Unknown", "Starting"))  # noqa: B023 - called before the next turn
    settled(namespace, operator)
    before, sent = versions(namespace), operator.writes()
    done = operator.metric("controller_runtime_reconcile_total")
    namespace.kubectl("annotate", "deployment", COLLECTOR, "a=b")
    eventually(lambda: operator.metric("controller_runtime_reconcile_total") > done)
    settled(namespace, operator)
    after = versions(namespace)
    assert {name for name in after if after[name] != before.get(name)} == {f"Deployment/{COLLECTOR}"}
    assert operator.writes() == sent
    namespace.kubectl("scale", "deployment", COLLECTOR, "--replicas=0")
    eventually(lambda: namespace.get("deployment", COLLECTOR)["spec"]["replicas"] == 1)


def test_users_go_one_by_one_and_the_last_takes_the_collector_along(operator: Operator, namespace: Namespace) -> None:
    brought_up(namespace, operator, brought("a"), brought("b"))
    namespace.kubectl("delete", "epd", "a", "--wait=false")
    eventually(lambda: collectors(namespace) == {COLLECTOR: ["b"]}, about=operator.log.read_text)
    # No garbage collector runs here: what goes now is pruned by the operator.
    namespace.kubectl("delete", "epd", "b", "--wait=false")
    eventually(lambda: collectors(namespace) == {}, about=operator.log.read_text)
    left = namespace.kubectl("get", "sa,roles,rolebindings", "-l", names.LABEL_COLLECTOR, "-o", "name").stdout
    assert left == ""
    assert namespace.get("pvc", "shared")["status"]["phase"] == "Bound"


def test_a_strangers_deployment_is_left_alone_and_told(operator: Operator, namespace: Namespace) -> None:
    labels = {"app": "theirs"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    namespace.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": COLLECTOR}, "spec": spec})
    before = namespace.get("deployment", COLLECTOR)["metadata"]["resourceVersion"]
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}}
    namespace.apply(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared"}, "spec": claim}
    )
    namespace.apply(brought())
    eventually(lambda: condition(namespace, "EncoderCacheHealthy") == ("False", "NameTaken"))
    assert namespace.get("deployment", COLLECTOR)["metadata"]["resourceVersion"] == before


def test_the_finalizer_holds_the_object_until_it_is_not_wanted_any_more(
    operator: Operator, namespace: Namespace
) -> None:
    brought_up(namespace, operator, brought(reclaimPolicy="Delete"))
    assert finalizers(namespace) == [names.FINALIZER_ENCODER_CACHE]
    namespace.kubectl("patch", "epd", "qwen", "--type=json", "-p", _keep())
    namespace.kubectl("delete", "epd", "qwen", "--wait=false")
    eventually(lambda: condition(namespace, "Ready") == ("False", "Reclaiming"), about=operator.log.read_text)
    roles = namespace.get("deployments", "-l", names.LABEL_ROLE)["items"]
    assert [role["spec"]["replicas"] for role in roles] == [0, 0]
    assert collectors(namespace) == {COLLECTOR: ["qwen"]}
    eventually(lambda: "Reclaiming" in events(namespace))
    settled(namespace, operator)
    sent = operator.writes()
    assert finalizers(namespace) == ["example.com/keep", names.FINALIZER_ENCODER_CACHE]
    namespace.kubectl(
        "patch", "epd", "qwen", "--type=merge", "-p", '{"spec":{"encoderCache":{"reclaimPolicy":"Retain"}}}'
    )
    eventually(lambda: finalizers(namespace) == ["example.com/keep"], about=operator.log.read_text)
    assert operator.writes() > sent
    namespace.kubectl("patch", "epd", "qwen", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    eventually(lambda: gone(namespace))
    eventually(lambda: collectors(namespace) == {}, about=operator.log.read_text)


def test_a_terminating_namespace_is_not_held_up(operator: Operator, namespace: Namespace) -> None:
    brought_up(namespace, operator, brought(reclaimPolicy="Delete"))
    # Nobody deletes what is in the namespace here; that its deletion was asked for is what counts.
    namespace.server.kubectl("delete", "namespace", namespace.name, "--wait=false")
    namespace.kubectl("delete", "epd", "qwen", "--wait=false")
    eventually(lambda: gone(namespace), within=20, about=operator.log.read_text)


def test_a_claim_that_is_gone_is_not_waited_for(operator: Operator, namespace: Namespace) -> None:
    brought_up(namespace, operator, brought(reclaimPolicy="Delete"))
    namespace.kubectl("patch", "pvc", "shared", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    namespace.kubectl("delete", "pvc", "shared", "--wait=false")
    eventually(lambda: not namespace.get("pvc")["items"])
    namespace.kubectl("delete", "epd", "qwen", "--wait=false")
    eventually(lambda: gone(namespace), about=operator.log.read_text)
    eventually(lambda: "Reclaimed" in events(namespace))


def _keep() -> str:
    return '[{"op": "add", "path": "/metadata/finalizers/0", "value": "example.com/keep"}]'
