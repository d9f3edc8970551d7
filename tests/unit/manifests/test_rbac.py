from __future__ import annotations

from epd.manifests.rbac import access
from unit.topology.objects import epd


def test_the_proxy_may_watch_pods_and_nothing_else() -> None:
    children = {(child["kind"], child["metadata"]["name"]): child for child in access(epd())}
    assert set(children) == {
        ("ServiceAccount", "qwen-vl-engine"),
        ("ServiceAccount", "qwen-vl-proxy"),
        ("Role", "qwen-vl-proxy"),
        ("RoleBinding", "qwen-vl-proxy"),
    }
    assert children["Role", "qwen-vl-proxy"]["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]
    binding = children["RoleBinding", "qwen-vl-proxy"]
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "qwen-vl-proxy"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "qwen-vl-proxy", "namespace": "ai"}]


def test_no_account_hands_out_its_token() -> None:
    accounts = [child for child in access(epd()) if child["kind"] == "ServiceAccount"]
    assert [account["automountServiceAccountToken"] for account in accounts] == [False, False]
