from __future__ import annotations

from epd.api.names import Role
from epd.manifests.labels import component_selector, labels, metadata, owner_reference, role_labels, role_selector
from epd.topology.model_version import model_version
from epd.topology.pairing import pairing
from unit.topology.objects import epd


def test_labels() -> None:
    assert labels(epd(), "proxy") == {
        "app.kubernetes.io/name": "vllm",
        "app.kubernetes.io/instance": "qwen-vl",
        "app.kubernetes.io/component": "proxy",
        "app.kubernetes.io/part-of": "epd",
        "app.kubernetes.io/managed-by": "epd-operator",
        "epd.dev/name": "qwen-vl",
    }


def test_role_labels() -> None:
    given = epd()
    assert role_labels(given, Role.PREFILL_DECODE) == labels(given, "prefill-decode") | {
        "llm-d.ai/role": "prefill-decode",
        "epd.dev/model-version": model_version(given.spec),
        "epd.dev/pairing": pairing(given),
    }


def test_selectors_select_and_hold_no_version() -> None:
    one, other = epd(), epd({"model.revision": "0"})
    assert role_selector(one, Role.ENCODE) == role_selector(other, Role.ENCODE)
    assert role_selector(one, Role.ENCODE).items() <= role_labels(one, Role.ENCODE).items()
    assert component_selector(one, "proxy").items() <= labels(one, "proxy").items()


def test_metadata() -> None:
    given = epd()
    assert metadata(given, "a", {"b": "c"}) == {
        "name": "a",
        "namespace": "ai",
        "labels": {"b": "c"},
        "ownerReferences": [owner_reference(given)],
    }
    assert "ownerReferences" not in metadata(given, "a", {}, owned=False)
    assert owner_reference(given) == {
        "apiVersion": "epd.dev/v1alpha1",
        "kind": "EPDDeployment",
        "name": "qwen-vl",
        "uid": "0-1",
        "controller": True,
        "blockOwnerDeletion": True,
    }
