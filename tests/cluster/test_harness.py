"""The harness itself: volumes like real ones, the API server seen from a pod, leftovers that `down` would name."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import Cluster, archive, images, snapshot
from cluster.steps import HarnessError, until

pytestmark = pytest.mark.node

RESTRICTED_POD = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED_CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}

LIST_PODS = """
import os, ssl, urllib.request
where = "/var/run/secrets/kubernetes.io/serviceaccount"
token, namespace = open(f"{where}/token").read(), open(f"{where}/namespace").read()
url = "https://{KUBERNETES_SERVICE_HOST}:{KUBERNETES_SERVICE_PORT}".format(**os.environ)
headers = {"Authorization": f"Bearer {token}"}
request = urllib.request.Request(f"{url}/api/v1/namespaces/{namespace}/pods", headers=headers)
context = ssl.create_default_context(cafile=f"{where}/ca.crt")
print(urllib.request.urlopen(request, context=context).status)
"""


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    """One namespace for all: to delete one takes 10 s, whatever is in it."""
    with cluster.namespace("epd-harness") as name:
        yield name


def claim(namespace: str, name: str, storage_class: str, mode: str = "ReadWriteMany") -> dict[str, Any]:
    spec = {
        "storageClassName": storage_class,
        "accessModes": [mode],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def pod(
    namespace: str, name: str, code: str, *, claims: tuple[str, ...] = (), account: str = "default"
) -> dict[str, Any]:
    container = {
        "name": "python",
        "image": images.OPERATOR,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", code],
        "securityContext": RESTRICTED_CONTAINER,
        "volumeMounts": [{"name": each, "mountPath": f"/{each}"} for each in claims],
    }
    spec = {
        "restartPolicy": "Never",
        "serviceAccountName": account,
        "securityContext": RESTRICTED_POD,
        "containers": [container],
        "volumes": [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def output(cluster: Cluster, namespace: str, name: str) -> str:
    """What a pod printed once it ended, well or not."""

    def ended() -> bool:
        return cluster.get("pod", name, "-n", namespace)["status"].get("phase") in ("Succeeded", "Failed")

    until(f"pod {name} ended", ended, seconds=60, every=0.2)
    return cluster.kubectl("logs", name, "-n", namespace)


def test_claim_of_the_default_class_is_shared_writable_by_gid_1000_and_deleted_with_its_folder(
    cluster: Cluster, namespace: str
) -> None:
    cluster.apply(claim(namespace, "shared", "epd-hostpath"))
    cluster.kubectl("wait", "pvc/shared", "-n", namespace, "--for=jsonpath={.status.phase}=Bound", "--timeout=20s")
    folder = cluster.claim_folder(namespace, "shared")
    assert (folder.stat().st_uid, folder.stat().st_gid, oct(folder.stat().st_mode)) == (0, 1000, "0o42770")
    cluster.apply(pod(namespace, "shared", "open('/shared/file', 'w').write('x')", claims=("shared",)))
    assert output(cluster, namespace, "shared") == ""
    assert (folder / "file").read_text() == "x"
    cluster.kubectl("delete", "pod/shared", "pvc/shared", "-n", namespace)
    until("folder gone", lambda: not folder.exists(), seconds=20)


def test_claim_of_the_root_only_class_is_not_writable(cluster: Cluster, namespace: str) -> None:
    cluster.apply(claim(namespace, "rootonly", "epd-root-only"))
    cluster.apply(pod(namespace, "rootonly", "open('/rootonly/file', 'w').write('x')", claims=("rootonly",)))
    assert "PermissionError" in output(cluster, namespace, "rootonly")


def test_waiting_class_binds_only_when_a_pod_uses_the_claim(cluster: Cluster, namespace: str) -> None:
    cluster.apply(claim(namespace, "other", "epd-hostpath"), claim(namespace, "waiting", "epd-hostpath-wait"))
    # the provisioner handles all claims in one pass: once `other` is bound, `waiting` has been looked at
    cluster.kubectl("wait", "pvc/other", "-n", namespace, "--for=jsonpath={.status.phase}=Bound", "--timeout=20s")
    assert cluster.get("pvc", "waiting", "-n", namespace)["status"]["phase"] == "Pending"
    cluster.apply(pod(namespace, "waiting", "pass", claims=("waiting",)))
    output(cluster, namespace, "waiting")
    assert cluster.get("pvc", "waiting", "-n", namespace)["status"]["phase"] == "Bound"


def test_single_node_class_refuses_read_write_many_with_an_event(cluster: Cluster, namespace: str) -> None:
    cluster.apply(claim(namespace, "single", "epd-single-node"))

    def events() -> list[str]:
        found = cluster.get("events", "-n", namespace, "--field-selector", "reason=ProvisioningFailed")["items"]
        return [event["message"] for event in found]

    until("an event", lambda: bool(events()), seconds=20)
    assert events() == ["failed to provision volume: epd-single-node does not serve ReadWriteMany"]


def test_pod_reaches_the_api_server_through_its_service_as_its_account(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "role", "reader", "--verb=list", "--resource=pods", "-n", namespace)
    subject = f"--serviceaccount={namespace}:default"
    cluster.kubectl("create", "rolebinding", "reader", "--role=reader", subject, "-n", namespace)
    cluster.apply(pod(namespace, "client", LIST_PODS))
    assert output(cluster, namespace, "client") == "200\n"


def test_namespace_enforces_the_restricted_standard(cluster: Cluster, namespace: str) -> None:
    root = pod(namespace, "root", "pass")
    del root["spec"]["securityContext"]
    with pytest.raises(HarnessError, match='violates PodSecurity "restricted'):
        cluster.apply(root)


def test_leftovers_name_what_is_new_and_what_is_lost() -> None:
    before = {"mounts": ["/"], "links": ["lo", "eth0"], "firewall": ["iptables: -t filter -A INPUT -j ACCEPT"]}
    after = {"mounts": ["/", "/run/netns/cni-1"], "links": ["lo", "epd0"], "firewall": []}
    assert snapshot.leftovers(before, before) == []
    assert snapshot.leftovers(before, after) == [
        "mounts: left: /run/netns/cni-1",
        "links: left: epd0",
        "links: lost: eth0",
        "firewall: lost: iptables: -t filter -A INPUT -j ACCEPT",
    ]


def test_only_rules_of_kube_proxy_and_cni_plugins_count_as_the_nodes() -> None:
    assert not snapshot.foreign_rule("-t nat -N KUBE-SERVICES")
    assert not snapshot.foreign_rule("-t nat -A PREROUTING -m comment -j KUBE-SERVICES")
    assert not snapshot.foreign_rule("-t nat -A CNI-HOSTPORT-DNAT -p tcp -j CNI-DN-1")
    assert snapshot.foreign_rule("-t filter -A INPUT -s 10.0.0.0/8 -j ACCEPT")
    assert snapshot.foreign_rule("-t filter -N DOCKER")


def test_archive_is_an_image_whose_digests_are_those_of_its_layers(tmp_path: Path) -> None:
    layer = archive.layer({"bin/tool": (b"x", 0o755), "bin/link": ("tool", 0o777)}, tmp_path / "layer.tar")
    archive.write(tmp_path / "image.tar", tag="localhost/x:1", layers=[layer], config={"Entrypoint": ["/bin/tool"]})
    digest = hashlib.sha256(layer.read_bytes()).hexdigest()
    with tarfile.open(tmp_path / "image.tar") as image:
        (manifest,) = json.load(image.extractfile("manifest.json") or pytest.fail("no manifest"))
        config = json.load(image.extractfile(manifest["Config"]) or pytest.fail("no config"))
    assert manifest["RepoTags"] == ["localhost/x:1"]
    assert manifest["Layers"] == [f"{digest}.tar"]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}"]
    assert config["config"] == {"Entrypoint": ["/bin/tool"]}
    with tarfile.open(layer) as files:
        assert [(m.name, m.mode, m.linkname) for m in files] == [("bin/link", 0o777, "tool"), ("bin/tool", 0o755, "")]
