from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.server import ApiServer as Server
from apiserver.server import Namespace
from epd.api.types import EPDDeployment
from epd.collector.apiserver import ApiServer
from epd.collector.asking import Asker
from epd.collector.endpoint import ApiError, by_address
from epd.collector.inputs import Claim
from epd.collector.seen import Root
from epd.manifests.collector_rbac import collector_access
from epd.topology.model_version import model_version

pytestmark = pytest.mark.apiserver

CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "ec", "annotations": {"epd.dev/adopt-encoder-cache-root": "r"}},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
}


def epd(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "apiVersion": "epd.dev/v1alpha1",
        "kind": "EPDDeployment",
        "metadata": {"name": name},
        "spec": {
            "model": {"name": f"org/{name}", "revision": "66285546d2b821cf421d4f5eb2576359d3770cd3"},
            "engine": {"image": "vllm/vllm-openai:v0.33.0"},
            "encode": {"replicas": 1},
            "prefillDecode": {"replicas": 1},
            "encoderCache": {"volume": {"persistentVolumeClaim": {"claimName": "ec"}}},
            **changes,
        },
    }


def workload(kind: str, name: str, version: str, replicas: int) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels | {"epd.dev/model-version": version}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }


def pod(name: str, version: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"epd.dev/model-version": version} if version else {}},
        "spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]},
    }


@dataclass(frozen=True)
class Account:
    """The collector's account as the operator makes it: its rights, and its token in a file."""

    namespace: Namespace
    token: Path
    ca: Path

    def api(self) -> ApiServer:
        endpoint = by_address(self.namespace.server.url, ca_file=str(self.ca), token_file=str(self.token))
        return ApiServer(endpoint, page_size=2)

    def asker(self) -> Asker:
        return Asker(self.api(), namespace=self.namespace.name, root=Root(claim="ec"))

    def renew(self) -> None:
        token = self.namespace.kubectl("create", "token", "ec-collector").stdout
        self.token.write_text(token)


@pytest.fixture
def account(api_server: Server, namespace: Namespace, tmp_path: Path) -> Account:
    user = EPDDeployment.model_validate(
        epd("first") | {"metadata": {"name": "first", "namespace": namespace.name, "uid": "0-1"}}
    )
    for manifest in collector_access([user]):
        # its owner is not in this namespace
        manifest["metadata"] = {"name": manifest["metadata"]["name"]}
        namespace.apply(manifest)
    namespace.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    ca = tmp_path / "ca.crt"
    (cluster,) = yaml.safe_load(api_server.kubeconfig.read_text())["clusters"]
    ca.write_bytes(base64.b64decode(cluster["cluster"]["certificate-authority-data"]))
    made = Account(namespace=namespace, token=tmp_path / "token", ca=ca)
    made.renew()
    return made


def test_the_rights_that_the_operator_gives_are_enough_and_all_pages_are_read(account: Account) -> None:
    namespace = account.namespace
    namespace.apply(CLAIM)
    for name in ("first", "second", "third"):
        namespace.apply(epd(name))
    namespace.set_status("first", {"modelVersion": "of-status", "roles": [role("encode", "of-role")]})
    for number, version in enumerate(("one", "two", "three")):
        namespace.apply(workload("Deployment", f"d{number}", f"deployment-{version}", 1))
        namespace.apply(workload("ReplicaSet", f"r{number}", f"replicaset-{version}", int(version != "three")))
        namespace.apply(pod(f"p{number}", f"pod-{version}" if version != "three" else ""))
    ask = account.asker()
    brief = ask.begin()
    uid = namespace.get("pvc", "ec")["metadata"]["uid"]
    assert (brief.claim, brief.problem) == (Claim(name=f"{namespace.name}/ec", uid=uid, adopts="r"), "")
    assert brief.in_force.users == ("first", "second", "third")
    answer = ask()
    assert (answer.valid, answer.message) == (True, "")
    own = {
        name: model_version(EPDDeployment.model_validate(namespace.get("epd", name)).spec)
        for name in ("first", "second", "third")
    }
    assert answer.live == {
        **{version: (name,) for name, version in own.items()},
        "of-status": ("first",),
        "of-role": ("first",),
        **{f"deployment-{number}": () for number in ("one", "two", "three")},
        **{f"replicaset-{number}": () for number in ("one", "two")},
        **{f"pod-{number}": () for number in ("one", "two")},
    }
    assert answer.pods == {item["metadata"]["uid"] for item in namespace.get("pods")["items"]}
    assert len(answer.pods) == 3


def role(name: str, version: str) -> dict[str, Any]:
    return {"name": name, "desired": 1, "ready": 1, "updated": 1, "modelVersions": [version]}


def test_an_empty_namespace_has_whole_lists_and_is_not_believed(account: Account) -> None:
    ask = account.asker()
    brief = ask.begin()
    assert (brief.claim, brief.problem) == (None, "")
    assert ask().message.startswith("nothing in the namespace names a version")


def test_a_terminating_pod_and_a_finalizing_object_count(account: Account) -> None:
    namespace = account.namespace
    namespace.apply(CLAIM)
    namespace.apply(epd("other"))
    leaving = epd("first")
    leaving["metadata"]["finalizers"] = ["epd.dev/encoder-cache"]
    leaving["spec"]["encoderCache"]["reclaimPolicy"] = "Delete"
    namespace.apply(leaving)
    version = model_version(EPDDeployment.model_validate(namespace.get("epd", "first")).spec)
    held = pod("held", version)
    held["metadata"]["labels"]["epd.dev/name"] = "first"
    held["metadata"]["finalizers"] = ["test.example/hold"]
    namespace.apply(held)
    namespace.kubectl("delete", "epd", "first", "--wait=false")
    namespace.kubectl("delete", "pod", "held", "--wait=false", "--grace-period=0", "--force")
    ask = account.asker()
    ask.begin()
    answer = ask()
    assert version in answer.live
    assert not answer.expedited
    namespace.kubectl("patch", "pod", "held", "--type=merge", "-p", json.dumps({"metadata": {"finalizers": None}}))
    answer = ask()
    assert version not in answer.live
    assert answer.expedited == {version}
    assert answer.valid


def test_a_right_that_is_missing_is_named(account: Account) -> None:
    namespace = account.namespace
    name = "ec-collector"
    rules = [rule for rule in namespace.get("role", name)["rules"] if "replicasets" not in rule["resources"]]
    namespace.kubectl("patch", "role", name, "--type=merge", "-p", json.dumps({"rules": rules}))
    problem = account.asker().begin().problem
    assert "HTTP 403: deployments.apps is forbidden" in problem
    assert f"system:serviceaccount:{namespace.name}:ec-collector" in problem


def test_a_token_is_read_anew_for_each_request(account: Account) -> None:
    api, path = account.api(), f"/api/v1/namespaces/{account.namespace.name}/pods"
    account.token.write_text("expired")
    with pytest.raises(ApiError, match="HTTP 401"):
        api.list_all(path, str)
    account.renew()
    assert api.list_all(path, str) == []


def test_a_server_with_a_certificate_of_somebody_else_is_refused(account: Account) -> None:
    endpoint = by_address(account.namespace.server.url, token_file=str(account.token))
    with pytest.raises(ApiError, match="CERTIFICATE_VERIFY_FAILED"):
        ApiServer(endpoint).get("/version")


def test_a_continue_token_that_is_no_good_is_an_error_and_not_the_end_of_the_list(account: Account) -> None:
    path = f"/api/v1/namespaces/{account.namespace.name}/pods"
    with pytest.raises(ApiError, match="HTTP 400"):
        account.api().get(f"{path}?limit=1&continue=nonsense")
