from __future__ import annotations

import time
from typing import Any

import pytest
import yaml

from apiserver.controller.objects import (
    CHILDREN,
    COLLECTOR,
    children,
    collectors,
    condition,
    epd,
    finish_jobs,
    roll_out,
    settled,
    versions,
)
from apiserver.controller.operator import Operator, eventually, running
from apiserver.server import ApiServer, Namespace
from epd.controller.permissions import PERMISSIONS

pytestmark = pytest.mark.apiserver


def brought_up(namespace: Namespace, operator: Operator, **changes: Any) -> None:
    namespace.apply(epd(**changes))
    eventually(lambda: children(namespace) == CHILDREN, about=operator.log.read_text)
    roll_out(namespace)
    eventually(lambda: any(c.startswith("job.batch/") for c in children(namespace)), about=operator.log.read_text)
    eventually(
        lambda: collectors(namespace) == {"qwen-encoder-cache-collector": ["qwen"]}, about=operator.log.read_text
    )
    finish_jobs(namespace)
    eventually(lambda: condition(namespace, "Ready")[0] == "True", about=operator.log.read_text)


def test_every_child_is_made_and_ready_follows(operator: Operator, namespace: Namespace) -> None:
    brought_up(namespace, operator)
    assert condition(namespace, "Available") == ("True", "Serving")
    assert condition(namespace, "StorageReady") == ("True", "Bound")
    assert namespace.get("epd", "qwen")["status"]["roleSummary"] == "2E 3PD"
    shown = namespace.kubectl("get", "epd").stdout
    assert [word in shown for word in ("2E 3PD", "AllReady", f"http://qwen.{namespace.name}.svc")] == [True] * 3


def test_the_second_reconcile_writes_nothing(operator: Operator, namespace: Namespace) -> None:
    brought_up(namespace, operator)
    settled(namespace, operator)
    before, sent = versions(namespace), operator.writes()
    done = operator.metric("controller_runtime_reconcile_total")
    # An annotation of somebody else: an event that makes a reconcile, and nothing for us to do.
    namespace.kubectl("annotate", "epd", "qwen", "a=b")
    namespace.kubectl("annotate", "service", "qwen", "a=b")
    eventually(lambda: operator.metric("controller_runtime_reconcile_total") >= done + 2)
    settled(namespace, operator)
    after = versions(namespace)
    assert {name for name in after if after[name] != before[name]} == {"EPDDeployment/qwen", "Service/qwen"}
    assert operator.writes() == sent


def test_a_restart_changes_nothing(api_server: ApiServer, namespace: Namespace, tmp_path: Any) -> None:
    flags = (f"--namespace={namespace.name}",)
    with running(api_server.kubeconfig, tmp_path, *flags) as operator:
        brought_up(namespace, operator)
        settled(namespace, operator)
        before = versions(namespace)
        assert operator.stop() == 0
    with running(api_server.kubeconfig, tmp_path, *flags) as operator:
        eventually(lambda: operator.metric("controller_runtime_reconcile_total") >= 1)
        settled(namespace, operator)
        assert operator.writes() == len(CHILDREN) + len(COLLECTOR)  # one apply each, none of which changed anything
    assert versions(namespace) == before


def test_a_typo_in_a_pod_template_is_quoted(operator: Operator, namespace: Namespace) -> None:
    engine = {"image": "vllm/vllm-openai:v0.33.0", "podTemplate": {"spec": {"tolerationz": []}}}
    namespace.apply(epd(engine=engine))
    eventually(lambda: condition(namespace, "Stalled") == ("True", "RejectedByAPIServer"))
    stalled = next(c for c in namespace.get("epd", "qwen")["status"]["conditions"] if c["type"] == "Stalled")
    assert ".spec.template.spec.tolerationz: field not declared in schema" in stalled["message"]
    assert condition(namespace, "Ready") == ("False", "RejectedByAPIServer")
    namespace.apply(epd())
    eventually(lambda: condition(namespace, "Stalled") == ("False", "AsSpecified"))


def test_a_taken_name_is_left_to_its_owner(operator: Operator, namespace: Namespace) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "qwen"}, "spec": {"ports": [{"port": 9}]}}
    namespace.apply(service)
    before = namespace.get("service", "qwen")
    namespace.apply(epd())
    eventually(lambda: condition(namespace, "Stalled") == ("True", "NameTaken"))
    assert namespace.get("service", "qwen") == before
    assert children(namespace) == set()
    namespace.kubectl("delete", "service", "qwen")
    namespace.kubectl("annotate", "epd", "qwen", "try=again")
    eventually(lambda: children(namespace) == CHILDREN)


def test_what_is_no_longer_wanted_goes(operator: Operator, namespace: Namespace) -> None:
    brought_up(namespace, operator)
    namespace.apply(epd(encode=None))
    eventually(lambda: "deployment.apps/qwen-encode" not in children(namespace))
    eventually(lambda: condition(namespace, "EncodeReady") == ("", ""))


def test_edits_by_hand_are_healed_and_fields_of_others_kept(operator: Operator, namespace: Namespace) -> None:
    brought_up(namespace, operator)
    namespace.kubectl("annotate", "deployment", "qwen-encode", "team=vision")
    namespace.kubectl("scale", "deployment", "qwen-encode", "--replicas=9")
    namespace.kubectl("label", "service", "qwen", "app.kubernetes.io/part-of=other", "--overwrite")
    namespace.kubectl("patch", "service", "qwen", "--type=merge", "-p", '{"spec":{"selector":{"evil":"x"}}}')
    eventually(lambda: namespace.get("deployment", "qwen-encode")["spec"]["replicas"] == 2)
    eventually(lambda: namespace.get("service", "qwen")["metadata"]["labels"]["app.kubernetes.io/part-of"] == "epd")
    eventually(lambda: "evil" not in namespace.get("service", "qwen")["spec"]["selector"])
    assert namespace.get("deployment", "qwen-encode")["metadata"]["annotations"]["team"] == "vision"


def test_a_scaler_takes_replicas_over_without_a_dip(operator: Operator, namespace: Namespace) -> None:
    brought_up(namespace, operator, encode={"replicas": 4})
    namespace.apply(epd(encode={"scaling": {"mode": "External"}}))
    eventually(lambda: _owners_of_replicas(namespace) == {"epd-operator-replicas"}, about=operator.log.read_text)
    assert namespace.get("deployment", "qwen-encode")["spec"]["replicas"] == 4
    namespace.kubectl("scale", "deployment", "qwen-encode", "--replicas=6")
    namespace.apply(epd(encode={"scaling": {"mode": "External"}}, suspend=True))
    eventually(lambda: namespace.get("deployment", "qwen-encode")["spec"]["replicas"] == 0)
    namespace.apply(epd(encode={"scaling": {"mode": "External"}}))
    eventually(lambda: namespace.get("deployment", "qwen-encode")["spec"]["replicas"] == 6)


def test_a_scaler_takes_the_proxy_over_without_a_dip(operator: Operator, namespace: Namespace) -> None:
    brought_up(namespace, operator, proxy={"replicas": 3})
    namespace.apply(epd(proxy={"scaling": {"mode": "External"}}))
    taken = {"epd-operator-replicas"}
    eventually(lambda: _owners_of_replicas(namespace, "qwen-proxy") == taken, about=operator.log.read_text)
    assert namespace.get("deployment", "qwen-proxy")["spec"]["replicas"] == 3
    namespace.kubectl("scale", "deployment", "qwen-proxy", "--replicas=6")
    namespace.apply(epd(proxy={"scaling": {"mode": "External"}}, suspend=True))
    eventually(lambda: namespace.get("deployment", "qwen-encode")["spec"]["replicas"] == 0)
    assert namespace.get("deployment", "qwen-proxy")["spec"]["replicas"] == 6
    namespace.apply(epd(proxy={"replicas": 1}))
    eventually(lambda: namespace.get("deployment", "qwen-proxy")["spec"]["replicas"] == 1)


def _owners_of_replicas(namespace: Namespace, deployment: str = "qwen-encode") -> set[str]:
    entries = namespace.get("deployment", deployment, "--show-managed-fields")["metadata"]["managedFields"]
    return {e["manager"] for e in entries if "f:replicas" in e["fieldsV1"].get("f:spec", {})}


def test_kubectl_wait_is_right_in_the_moment_after_an_edit(operator: Operator, namespace: Namespace) -> None:
    brought_up(namespace, operator)
    for number in range(3):
        namespace.apply(epd(restartedAt=str(number)))
        waited = namespace.kubectl("wait", "--for=condition=Ready", "epd/qwen", "--timeout=2s", check=False)
        assert waited.returncode != 0, waited.stdout  # the rollout has not even begun
        roll_out(namespace)
        namespace.kubectl("wait", "--for=condition=Ready", "epd/qwen", "--timeout=20s")


def test_it_stops_within_its_grace_period(api_server: ApiServer, namespace: Namespace, tmp_path: Any) -> None:
    with running(api_server.kubeconfig, tmp_path, f"--namespace={namespace.name}") as operator:
        namespace.apply(epd())  # something is under way
        began = time.monotonic()
        assert operator.stop() == 0
        assert time.monotonic() - began < 25  # the chart grants 30 s
        assert "Traceback" not in operator.log.read_text()


def test_the_rights_of_the_chart_are_enough(api_server: ApiServer, namespace: Namespace, tmp_path: Any) -> None:
    kubeconfig = _account(api_server, namespace, tmp_path)
    with running(kubeconfig, tmp_path, f"--namespace={namespace.name}") as operator:
        brought_up(namespace, operator)
        namespace.apply(epd(encode=None))
        eventually(lambda: "deployment.apps/qwen-encode" not in children(namespace))
        assert operator.metric("rest_client_requests_total", code="403") == 0
        assert "orbidden" not in operator.log.read_text()


def _account(api_server: ApiServer, namespace: Namespace, tmp_path: Any) -> Any:
    """A kubeconfig of a service account with exactly `PERMISSIONS`, in one namespace."""
    rules = [{"apiGroups": [p.group], "resources": [p.resource], "verbs": list(p.verbs)} for p in PERMISSIONS]
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": namespace.name}
    namespace.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "operator"}})
    namespace.apply({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "operator"}, "rules": rules})
    namespace.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "operator"},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "operator"},
            "subjects": [subject],
        }
    )
    token = namespace.kubectl("create", "token", "operator").stdout.strip()
    config = yaml.safe_load(api_server.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path
