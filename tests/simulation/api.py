"""A simulated API server behind the `Cluster` protocol: versions, generations, ownership, owner collection, faults.

Holds every call against `permissions`, so a verb that the chart does not grant fails here first.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from epd.controller import errors, permissions
from epd.controller.kinds import Kind, Manifest, kind_of, name_of
from simulation import fields

Address = tuple[Kind, str, str]
POD_FIELDS = frozenset(
    {
        "affinity", "automountServiceAccountToken", "containers", "enableServiceLinks", "imagePullSecrets",
        "initContainers", "nodeSelector", "restartPolicy", "securityContext", "serviceAccountName",
        "terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes",
    }
)  # fmt: skip


class Crashed(BaseException):
    """The operator process dies here. Not an Exception: nothing may catch it."""


@dataclass
class Call:
    """One call of the operator."""

    verb: str
    kind: Kind
    name: str
    wrote: bool = False


def no_fault(_number: int, _call: Call) -> None:
    """The default: every call works."""


@dataclass
class SimulatedCluster:
    """Objects are never changed in place, so a copy of the dict is a snapshot. The operator must not do it either."""

    before: Callable[[int, Call], None] = no_fault
    """Called with the number of the call before it has any effect; raises the fault."""
    after: Callable[[int, Call], None] = no_fault
    stale_by: Callable[[Call], int] = lambda _call: 0
    """By how many writes the answer to a list is old."""
    on_event: Callable[[Kind, Manifest], None] = lambda _kind, _obj: None
    objects: dict[Address, Manifest] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    history: list[dict[Address, Manifest]] = field(default_factory=list)
    version: int = 0
    terminating: bool = False
    """The namespace is being deleted: nothing can be made."""

    # --- the Cluster protocol

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        call = self._begin("get", kind, name)
        found = self.objects.get((kind, namespace, name))
        self._end(call)
        if found is None:
            raise errors.NotFound(f"GET {kind.plural}: {name} not found")
        return found

    async def list(self, kind: Kind, namespace: str, *, labels: str = "", fields: str = "") -> tuple[Manifest, ...]:
        call = self._begin("list", kind, "")
        old = self.stale_by(call)
        objects = self.history[-1 - old] if 0 < old < len(self.history) else self.objects
        self._end(call)
        return tuple(
            obj
            for (k, ns, _), obj in sorted(objects.items(), key=lambda item: item[0][2])
            if k == kind and namespace in ("", ns) and _selected(obj, labels, fields)
        )

    async def apply(self, manifest: Manifest, *, manager: str) -> Manifest:
        kind, meta = kind_of(manifest), manifest["metadata"]
        call = self._begin("patch", kind, meta["name"])
        address = (kind, meta["namespace"], meta["name"])
        live = self.objects.get(address)
        if live is None:
            self._may("create", kind)
        if meta.get("uid") and (live is None or live["metadata"]["uid"] != meta["uid"]):
            raise errors.Conflict(f"PATCH {kind.plural}: uid mismatch")
        _strict(manifest)
        base = live or {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"],
                        "metadata": {"name": meta["name"], "namespace": meta["namespace"]}}  # fmt: skip
        result = fields.apply(base, manifest, manager)
        _immutable(live, result)
        call.wrote = self._store(address, result)
        self._end(call)
        return self.objects[address]

    async def delete(self, manifest: Manifest) -> None:
        kind, meta = kind_of(manifest), manifest["metadata"]
        call = self._begin("delete", kind, meta["name"])
        live = self.objects.get((kind, meta["namespace"], meta["name"]))
        if live is None:
            raise errors.NotFound(f"DELETE {kind.plural}: {meta['name']} not found")
        if live["metadata"]["uid"] != meta["uid"]:
            raise errors.Conflict(f"DELETE {kind.plural}: uid mismatch")
        self.remove(kind, meta["namespace"], meta["name"])
        call.wrote = True
        self._end(call)

    async def patch_status(self, manifest: Manifest, patch: Manifest) -> Manifest:
        kind, meta = kind_of(manifest), manifest["metadata"]
        call = self._begin("patch", kind, meta["name"], subresource="status")
        live = self.objects.get((kind, meta["namespace"], meta["name"]))
        if live is None:
            raise errors.NotFound("PATCH status: not found")
        if live["metadata"]["uid"] != meta["uid"]:
            raise errors.Conflict("PATCH status: uid mismatch")
        result = {**live, "status": merged(live.get("status") or {}, patch)}
        call.wrote = self._store((kind, meta["namespace"], meta["name"]), result)
        self._end(call)
        return result

    async def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        kind, meta = kind_of(manifest), manifest["metadata"]
        call = self._begin("create", kind, meta["name"])
        if self.terminating:
            raise errors.NamespaceTerminating(f"POST {kind.plural}: namespace ai is being terminated")
        if dry_run:
            return manifest
        address = (kind, meta["namespace"], meta["name"])
        if address in self.objects:
            raise errors.Conflict(f"POST {kind.plural}: {meta['name']} already exists")
        call.wrote = self._store(address, copy.deepcopy(manifest))
        self._end(call)
        return self.objects[address]

    async def patch(self, manifest: Manifest, patch: Manifest) -> Manifest:
        kind, meta = kind_of(manifest), manifest["metadata"]
        call = self._begin("patch", kind, meta["name"])
        address = (kind, meta["namespace"], meta["name"])
        live = self.objects.get(address)
        if live is None:
            raise errors.NotFound(f"PATCH {kind.plural}: {meta['name']} not found")
        wanted = patch.get("metadata", {})
        if any(wanted.get(key, live["metadata"][key]) != live["metadata"][key] for key in ("uid", "resourceVersion")):
            raise errors.Conflict(f"PATCH {kind.plural}: {meta['name']} has been modified")
        result = merged(live, patch)
        if result["metadata"].get("deletionTimestamp") and not result["metadata"].get("finalizers"):
            self.remove(kind, meta["namespace"], meta["name"])
            call.wrote = True
        else:
            call.wrote = self._store(address, result)
        self._end(call)
        return result

    # --- what tests and the other controllers do: no permission, no fault

    def put(self, manifest: Manifest) -> Manifest:
        """Create or replace, as anyone with full rights."""
        meta = manifest["metadata"]
        address = (kind_of(manifest), meta["namespace"], meta["name"])
        self._store(address, copy.deepcopy(manifest))
        return self.objects[address]

    def edit(self, kind: Kind, name: str, path: tuple[str, ...], value: Any, *, manager: str = "human") -> None:
        """Update one field."""
        address = (kind, "ai", name)
        self._store(address, fields.edit(self.objects[address], path, value, manager))

    def set_status(self, obj: Manifest, status: dict[str, Any]) -> None:
        """What another controller reports."""
        self._store((kind_of(obj), obj["metadata"]["namespace"], name_of(obj)), {**obj, "status": status})

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        """Delete, and collect what it owned."""
        gone = self.objects.pop((kind, namespace, name))
        self._snapshot()
        self.on_event(kind, gone)
        uid = gone["metadata"]["uid"]
        for k, ns, n in [a for a, o in self.objects.items() if _owned_by(o, uid)]:
            if (k, ns, n) in self.objects:
                self.remove(k, ns, n)

    def all(self, kind: Kind) -> dict[str, Manifest]:
        """Objects of a kind by name."""
        return {name: obj for (k, _, name), obj in self.objects.items() if k == kind}

    @property
    def writes(self) -> int:
        """Calls of the operator that changed something."""
        return sum(call.wrote for call in self.calls)

    def _begin(self, verb: str, kind: Kind, name: str, *, subresource: str = "") -> Call:
        self._may(verb, kind, subresource)
        call = Call(verb, kind, name)
        self.calls.append(call)
        self.before(len(self.calls), call)
        return call

    def _end(self, call: Call) -> None:
        self.after(len(self.calls), call)

    @staticmethod
    def _may(verb: str, kind: Kind, subresource: str = "") -> None:
        assert permissions.allowed(kind, verb, subresource), f"{verb} {kind.plural}/{subresource} is not in PERMISSIONS"

    def _store(self, address: Address, obj: Manifest) -> bool:
        live = self.objects.get(address)
        obj = _defaulted(obj)
        meta = obj["metadata"]
        if live is None:
            self.version += 1
            meta |= {"uid": f"uid-{self.version}", "generation": 1, "resourceVersion": str(self.version)}
            meta["creationTimestamp"] = f"2026-01-01T00:{self.version // 60 % 60:02}:{self.version % 60:02}Z"
        else:
            meta |= {key: live["metadata"][key] for key in ("uid", "generation", "resourceVersion")}
            if obj == live:
                return False
            self.version += 1
            if obj.get("spec") != live.get("spec"):
                meta["generation"] += 1
            meta["resourceVersion"] = str(self.version)
        self.objects[address] = obj
        self._snapshot()
        self.on_event(address[0], obj)
        return True

    def _snapshot(self) -> None:
        self.history.append(dict(self.objects))


def merged(old: Any, patch: Any) -> Any:
    """JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def _selected(obj: Manifest, labels: str, selector: str) -> bool:
    if labels:
        key, equals, value = labels.partition("=")
        held = (obj["metadata"].get("labels") or {}).get(key)
        if held is None or (equals and held != value):
            return False
    if selector:
        path, value = selector.split("=")
        return bool(fields.get(obj, tuple(path.split("."))) == value)
    return True


def _owned_by(obj: Manifest, uid: str) -> bool:
    return any(o["uid"] == uid for o in obj["metadata"].get("ownerReferences") or ())


def _defaulted(obj: Manifest) -> Manifest:
    obj = json.loads(json.dumps(obj))
    if obj["kind"] == "Deployment":
        obj["spec"].setdefault("replicas", 1)
    return dict(obj)


def _strict(manifest: Manifest) -> None:
    pod = fields.get(manifest, ("spec", "template", "spec"))
    for unknown in sorted(set(pod or ()) - POD_FIELDS):
        raise errors.error_of(
            status=500,
            body={"message": f"failed to create typed patch object: .spec.template.spec.{unknown}: field not declared"},
            call="PATCH deployments",
        )


def _immutable(live: Manifest | None, new: Manifest) -> None:
    if live is None:
        return
    if new["kind"] == "ControllerRevision" and new["data"] != live["data"]:
        raise errors.Rejected("ControllerRevision.data: field is immutable")
    if new["kind"] == "ConfigMap" and live.get("immutable") and new["data"] != live["data"]:
        raise errors.Rejected("ConfigMap.data: field is immutable when `immutable` is set")
    if new["kind"] == "Job" and new["spec"] != live["spec"]:
        raise errors.Rejected("Job.spec.template: field is immutable")
    if new["kind"] == "PersistentVolumeClaim" and new["spec"] != live["spec"]:
        raise errors.Rejected("PersistentVolumeClaim.spec: Forbidden: spec is immutable after creation")
