"""Merging a user's podTemplate into ours, by the rules of a strategic merge patch. Pure; validates nothing.

Merge keys: `k8s.io/api/core/v1/types.go` (`patchMergeKey`). Lists without one are replaced, as `kubectl patch` does.
Differences, both so that one of two exclusive members can be replaced by the other: a volume or variable of the same
name that names another source takes its place (kubectl's `retainKeys`), and so does another handler of a probe.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

_MERGE_KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
}

_UNIONS: Final = {
    "livenessProbe": frozenset({"httpGet", "exec", "tcpSocket", "grpc"}),
    "readinessProbe": frozenset({"httpGet", "exec", "tcpSocket", "grpc"}),
    "startupProbe": frozenset({"httpGet", "exec", "tcpSocket", "grpc"}),
    "preStop": frozenset({"httpGet", "exec", "tcpSocket", "sleep"}),
    "env": frozenset({"value", "valueFrom"}),
}
"""Fields of which an object may have one only; of a volume, all but `name`."""

Object = dict[str, Any]


def _exclusive(field: str, given: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(given) - {"name"} if field == "volumes" else _UNIONS.get(field, frozenset())


def _merge_object(field: str, base: Mapping[str, Any], patch: Mapping[str, Any]) -> Object:
    exclusive = _exclusive(field, {**base, **patch})
    chosen = exclusive & {key for key, value in patch.items() if value is not None}
    dropped = exclusive - chosen if chosen else frozenset()
    merged = {key: value for key, value in base.items() if key not in dropped}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_value(key, merged.get(key), value)
    return merged


def _merge_list(field: str, base: Sequence[Any], patch: Sequence[Any]) -> list[Any]:
    key = _MERGE_KEYS[field]
    merged: dict[Any, Any] = {}
    for number, item in enumerate((*base, *patch)):
        # What has no key is left to the API server to refuse.
        place = item.get(key, ("no key", number)) if isinstance(item, Mapping) else ("no key", number)
        merged[place] = _merge_value(field, merged.get(place), item)
    return list(merged.values())


def _merge_value(field: str, base: Any, patch: Any) -> Any:
    if isinstance(patch, Mapping):
        return _merge_object(field, base if isinstance(base, Mapping) else {}, patch)
    if isinstance(patch, list) and field in _MERGE_KEYS:
        return _merge_list(field, base if isinstance(base, list) else [], patch)
    return copy.deepcopy(patch)


def merge_pod_template(base: Mapping[str, Any], *patches: Mapping[str, Any]) -> Object:
    """Return the pod template `base` with each of `patches` merged in, in order; `null` removes a field.

    The result shares no container with the arguments, and merging one patch twice is the same as once.
    """
    merged = _merge_object("template", {}, base)
    for patch in patches:
        merged = _merge_object("template", merged, patch)
    return merged
