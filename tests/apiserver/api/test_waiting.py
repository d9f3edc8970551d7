"""`kubectl wait` must be right about us at every moment, also before the operator has seen the object."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.api.objects import E_PD, changed
from apiserver.server import Namespace

pytestmark = pytest.mark.apiserver


def ready(namespace: Namespace) -> bool:
    """Whether `kubectl wait` is content now; 0 s is one look."""
    return not namespace.kubectl("wait", "epd/demo", "--for=condition=Ready", "--timeout=0s", check=False).returncode


def status(generation: int) -> dict[str, Any]:
    """Ready, as the operator says it of one generation."""
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "AllReady",
        "message": "",
        "lastTransitionTime": "2026-11-29T12:00:00Z",
        "observedGeneration": generation,
    }
    return {"observedGeneration": generation, "conditions": [condition]}


def test_not_ready_before_the_first_reconcile(namespace: Namespace) -> None:
    namespace.apply(E_PD)

    assert not ready(namespace)
    assert namespace.get("epd", "demo")["status"] == {
        "observedGeneration": 0,
        "conditions": [
            {
                "type": "Ready",
                "status": "Unknown",
                "reason": "Pending",
                "message": "Waiting for the operator",
                "lastTransitionTime": "1970-01-01T00:00:00Z",
                "observedGeneration": 0,
            }
        ],
    }


def test_ready_once_the_operator_says_so(namespace: Namespace) -> None:
    namespace.apply(E_PD)
    namespace.set_status("demo", status(generation=1))

    assert ready(namespace)


def test_not_ready_right_after_an_edit(namespace: Namespace) -> None:
    namespace.apply(E_PD)
    namespace.set_status("demo", status(generation=1))

    namespace.apply(changed({"spec.restartedAt": "now"}))

    assert namespace.get("epd", "demo")["status"]["conditions"][0]["status"] == "True"
    assert not ready(namespace)


def test_a_change_of_metadata_keeps_it_ready(namespace: Namespace) -> None:
    namespace.apply(E_PD)
    namespace.set_status("demo", status(generation=1))

    namespace.kubectl("label", "epd", "demo", "team=ml")

    assert ready(namespace)


def test_an_applied_status_is_ignored(namespace: Namespace) -> None:
    """A manifest read from a cluster brings its status along; it must not make the object ready."""
    namespace.create(E_PD | {"status": status(generation=1)})

    assert not ready(namespace)
