"""What of a claim to make may change, and what not."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.api.objects import ABSENT, E_PD, TEMPLATE, changed
from apiserver.server import Namespace

pytestmark = pytest.mark.apiserver

VOLUME = "spec.encoderCache.volume"
CLAIM = f"{VOLUME}.volumeClaimTemplate.spec"
FULL = {
    f"{CLAIM}.volumeName": "nfs-1",
    f"{CLAIM}.selector": {"matchLabels": {"tier": "fast"}},
    f"{CLAIM}.dataSource": {"kind": "PersistentVolumeClaim", "name": "old"},
}

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "class": ({f"{CLAIM}.storageClassName": "ssd"}, "storageClassName cannot be changed: a claim keeps its class"),
    "class removed": ({f"{CLAIM}.storageClassName": ABSENT}, "storageClassName cannot be changed"),
    "access modes": ({f"{CLAIM}.accessModes": ["ReadWriteOnce"]}, "accessModes cannot be changed: a claim keeps its"),
    "volume": ({f"{CLAIM}.volumeName": "nfs-2"}, "volumeName cannot be changed: a claim keeps its volume"),
    "volume removed": ({f"{CLAIM}.volumeName": ABSENT}, "volumeName cannot be changed"),
    "selector": ({f"{CLAIM}.selector": {"matchLabels": {"tier": "slow"}}}, "selector cannot be changed"),
    "mode given": ({f"{CLAIM}.volumeMode": "Filesystem"}, "volumeMode cannot be changed: a claim keeps its mode"),
    "source": (
        {f"{CLAIM}.dataSource": {"kind": "PersistentVolumeClaim", "name": "other"}},
        "dataSource cannot be changed: a claim keeps what it began with",
    ),
    "source given": (
        {f"{CLAIM}.dataSourceRef": {"apiGroup": "a.example", "kind": "Populator", "name": "p"}},
        "dataSourceRef cannot be changed",
    ),
    "smaller": ({f"{CLAIM}.resources.requests.storage": "99Gi"}, "requests.storage cannot shrink: volumes only grow"),
    "smaller in another unit": ({f"{CLAIM}.resources.requests.storage": "100G"}, "requests.storage cannot shrink"),
}

ALLOWED: dict[str, dict[str, Any]] = {
    "larger": {f"{CLAIM}.resources.requests.storage": "200Gi"},
    "equal in another unit": {f"{CLAIM}.resources.requests.storage": "102400Mi"},
    "labels": {f"{VOLUME}.volumeClaimTemplate.metadata": {"labels": {"team": "ml"}}},
    "a claim you brought": {VOLUME: {"persistentVolumeClaim": {"claimName": "ec"}}},
    "no cache": {"spec.encode": ABSENT, "spec.encoderCache": ABSENT},
    "retained": {"spec.encoderCache.reclaimPolicy": "Retain"},
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(namespace: Namespace, changes: dict[str, Any], message: str) -> None:
    namespace.apply(changed(FULL))

    done = namespace.apply(changed(FULL | changes), check=False)

    assert done.returncode == 1
    assert f"{CLAIM}.{message}" in done.stderr or f"{CLAIM}.resources.{message}" in done.stderr


@pytest.mark.parametrize("changes", ALLOWED.values(), ids=ALLOWED)
def test_allowed(namespace: Namespace, changes: dict[str, Any]) -> None:
    namespace.apply(changed(FULL))

    namespace.apply(changed(FULL | changes))


def test_adding_what_was_absent_is_a_change(namespace: Namespace) -> None:
    namespace.apply(E_PD)

    done = namespace.apply(changed({f"{CLAIM}.volumeName": "nfs-1"}), check=False)

    assert "volumeName cannot be changed" in done.stderr


def test_another_template_after_a_claim_you_brought(namespace: Namespace) -> None:
    other = {"spec": TEMPLATE["spec"] | {"storageClassName": "ssd"}}
    namespace.apply(E_PD)
    namespace.apply(changed({VOLUME: {"persistentVolumeClaim": {"claimName": "ec"}}}))

    namespace.apply(changed({VOLUME: {"volumeClaimTemplate": other}}))
