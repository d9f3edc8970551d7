from __future__ import annotations

from epd.api.types import Resources
from epd.manifests import pod
from unit.topology.objects import epd


def test_grace_is_prestop_drain_and_margin() -> None:
    assert pod.graceful_stop(60) == ({"preStop": {"sleep": {"seconds": 5}}}, 75)


def test_pull_secrets() -> None:
    spec = epd({"imagePullSecrets": [{"name": "a"}, {"name": "b"}]}).spec
    assert pod.pull_secrets(spec) == {"imagePullSecrets": [{"name": "a"}, {"name": "b"}]}
    assert pod.pull_secrets(epd().spec) == {}


def test_resources_are_text_and_sorted() -> None:
    assert pod.resources(Resources()) == {}
    found = pod.resources(Resources(limits={"nvidia.com/gpu": 1, "memory": "1Gi"}))
    assert list(found["resources"]["limits"].items()) == [("memory", "1Gi"), ("nvidia.com/gpu", "1")]


def test_the_proxy_may_run_on_another_node() -> None:
    assert pod.same_node(epd()) == {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {
            "matchLabels": {"epd.dev/name": "qwen-vl"},
            "matchExpressions": [{"key": "app.kubernetes.io/component", "operator": "NotIn", "values": ["proxy"]}],
        },
    }


def test_mount() -> None:
    assert pod.mount("a", "/a") == {"name": "a", "mountPath": "/a"}
    assert pod.mount("a", "/a", sub_path="b", read_only=True) == {
        "name": "a",
        "mountPath": "/a",
        "subPath": "b",
        "readOnly": True,
    }


def test_a_seccomp_profile_of_the_users_stays() -> None:
    profile = {"type": "Localhost", "localhostProfile": "p"}
    context = pod.engine_security_context(epd({"securityContext": {"seccompProfile": profile}}).spec)
    assert context == {"seccompProfile": profile}
