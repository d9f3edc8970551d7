from __future__ import annotations

from epd.manifests.collector_rbac import collector_access
from unit.topology.objects import epd

NAME = "qwen-vl-encoder-cache-collector"


def test_it_may_read_what_lives_and_write_nothing() -> None:
    children = {child["kind"]: child for child in collector_access([epd()])}
    assert set(children) == {"ServiceAccount", "Role", "RoleBinding"}
    assert children["Role"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": ["apps"], "resources": ["deployments", "replicasets"], "verbs": ["get", "list"]},
        {"apiGroups": ["epd.dev"], "resources": ["epddeployments"], "verbs": ["get", "list"]},
        {
            "apiGroups": [""],
            "resources": ["persistentvolumeclaims"],
            "resourceNames": ["qwen-vl-encoder-cache"],
            "verbs": ["get"],
        },
    ]
    binding = children["RoleBinding"]
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": "ai"}]
    assert children["ServiceAccount"]["automountServiceAccountToken"] is False
