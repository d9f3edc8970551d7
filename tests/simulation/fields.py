"""Field ownership of server-side apply, as far as the children's shapes need it: leaves of maps, lists as a whole.

Source of the rules: structured-merge-diff, merge/update.go. Lists are atomic here, which is stricter than the API
server for lists of maps: an edit of one container takes the list, and an apply takes it back.
"""

from __future__ import annotations

import copy
from typing import Any

Path = tuple[str, ...]
IDENTITY = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid")}
ATOMIC = {("spec", "selector")}
"""Maps with `x-kubernetes-map-type: atomic`, of Services as of Deployments."""


def leaves(value: Any, path: Path = ()) -> dict[Path, Any]:
    """Every leaf of nested maps with its path; identity left out."""
    if isinstance(value, dict) and value and path not in ATOMIC:
        found: dict[Path, Any] = {}
        for key, inner in value.items():
            found |= leaves(inner, (*path, key))
        return found
    return {} if path in IDENTITY or path[:1] == ("status",) else {path: value}


def get(obj: Any, path: Path) -> Any:
    """The value at a path; None if there is none."""
    for key in path:
        if not isinstance(obj, dict) or key not in obj:
            return None
        obj = obj[key]
    return obj


def put(obj: dict[str, Any], path: Path, value: Any) -> None:
    """Set a value, making maps on the way."""
    for key in path[:-1]:
        if not isinstance(obj.get(key), dict):
            obj[key] = {}
        obj = obj[key]
    obj[path[-1]] = copy.deepcopy(value)


def drop(obj: dict[str, Any], path: Path) -> None:
    """Remove a value, and maps that become empty."""
    if not isinstance(obj, dict) or path[0] not in obj:
        return
    if len(path) > 1:
        drop(obj[path[0]], path[1:])
        if obj[path[0]] == {}:
            del obj[path[0]]
    else:
        del obj[path[0]]


def fields_v1(paths: set[Path]) -> dict[str, Any]:
    """The form of `managedFields[].fieldsV1`."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for key in path:
            node = node.setdefault(f"f:{key}", {})
    return tree


def paths_of(tree: dict[str, Any], path: Path = ()) -> set[Path]:
    """The reverse of `fields_v1`."""
    if not tree and path:
        return {path}
    return {p for key, inner in tree.items() for p in paths_of(inner, (*path, key.removeprefix("f:")))}


def owned(obj: dict[str, Any]) -> dict[tuple[str, str], set[Path]]:
    """Paths by (manager, operation)."""
    entries = obj["metadata"].get("managedFields") or ()
    return {(e["manager"], e["operation"]): paths_of(e["fieldsV1"]) for e in entries}


def record(obj: dict[str, Any], owners: dict[tuple[str, str], set[Path]]) -> None:
    """Write `managedFields`."""
    obj["metadata"]["managedFields"] = [
        {"manager": manager, "operation": operation, "fieldsV1": fields_v1(paths)}
        for (manager, operation), paths in sorted(owners.items())
        if paths
    ]


def apply(live: dict[str, Any], manifest: dict[str, Any], manager: str) -> dict[str, Any]:
    """Forced server-side apply."""
    result, owners, me = copy.deepcopy(live), owned(live), (manager, "Apply")
    wanted = leaves(manifest)
    for path in owners.get(me, set()) - set(wanted):
        if not any(path in paths for other, paths in owners.items() if other != me):
            drop(result, path)
    for path, value in wanted.items():
        if get(result, path) != value:
            for other, paths in owners.items():
                if other != me:
                    paths.discard(path)
        put(result, path, value)
    owners[me] = set(wanted)
    record(result, owners)
    return result


def edit(live: dict[str, Any], path: Path, value: Any, manager: str) -> dict[str, Any]:
    """What an update of one field by somebody else does; None removes it."""
    result, owners = copy.deepcopy(live), owned(live)
    for paths in owners.values():
        paths.difference_update({p for p in paths if p[: len(path)] == path or path[: len(p)] == p})
    if value is None:
        drop(result, path)
    else:
        put(result, path, value)
        owners.setdefault((manager, "Update"), set()).add(path)
    record(result, owners)
    return result
