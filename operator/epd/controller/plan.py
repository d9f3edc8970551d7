"""What to apply and what to delete: from what is wanted, what is there, and what we applied last.

Pure. Does not compare wanted fields with live ones, since the API server normalises and defaults (`1000m` becomes
`1`): it remembers per child what was applied and which fields the API server said are ours after it. While both are
the same, nobody has changed a field of ours, and nothing needs to be written. The memory is an optimisation only:
without it (after a restart) one apply per child is made, which changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from epd.api import names
from epd.controller import kinds
from epd.controller.kinds import Kind, Manifest, kind_of, name_of, uid_of

ChildKey = tuple[Kind, str]


class Snapshot(Protocol):
    """What the cluster has of what one key is about."""

    @property
    def children(self) -> Mapping[ChildKey, Manifest]:
        """Every listed child by kind and name, whoever owns it."""

    def child(self, kind: Kind, name: str) -> Manifest | None:
        """A child that is ours, or None."""

    def ours(self, live: Manifest) -> bool:
        """Whether we made it."""

    def prunable(self, live: Manifest) -> bool:
        """Whether it may go when it is no longer wanted."""


@dataclass(frozen=True)
class Mark:
    """What was applied to one child, and what the API server recorded as ours."""

    manifest: str
    fields: str


Memo = Mapping[str, Mark]
"""By the child's UID."""


@dataclass(frozen=True)
class Taken:
    """A name that we want and somebody else has."""

    manifest: Manifest
    owner: str
    leaving: bool
    """It belonged to an earlier EPDDeployment of this name and is about to be collected: waiting is enough."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Writes in the order to make them."""

    apply: tuple[Manifest, ...] = ()
    delete: tuple[Manifest, ...] = ()
    taken: tuple[Taken, ...] = ()


def plan(desired: Iterable[Manifest], observed: Snapshot, memo: Memo) -> Plan:
    """Compare. A taken name stops all writes: half a deployment beside a stranger's Service helps nobody."""
    desired = tuple(desired)
    taken = tuple(t for m in desired if (t := _taken(m, observed)) is not None)
    if taken:
        return Plan(taken=taken)
    return Plan(
        apply=tuple(m for m in desired if _due(m, observed, memo)),
        delete=superfluous(desired, observed),
    )


def superfluous(desired: Iterable[Manifest], observed: Snapshot) -> tuple[Manifest, ...]:
    """What is there, ours, and no longer wanted."""
    wanted = {(kind_of(m), name_of(m)) for m in desired}
    return tuple(live for key, live in observed.children.items() if key not in wanted and observed.prunable(live))


def mark(manifest: Manifest, live: Manifest) -> Mark:
    """What to remember of an apply: the manifest sent, and the object that came back."""
    return Mark(manifest=digest(manifest), fields=_our_fields(live))


def digest(value: Any) -> str:
    """A hash that is equal for equal JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def _due(manifest: Manifest, observed: Snapshot, memo: Memo) -> bool:
    live = observed.child(kind_of(manifest), name_of(manifest))
    if live is None:
        return True
    # A Job's template is immutable; one of another name is made when its inputs change. What is being deleted is made
    # anew when it is gone.
    if kind_of(manifest) == kinds.JOB or live["metadata"].get("deletionTimestamp"):
        return False
    return memo.get(uid_of(live)) != mark(manifest, live)


def _our_fields(live: Manifest) -> str:
    entries = live["metadata"].get("managedFields") or ()
    return digest(
        [
            entry.get("fieldsV1")
            for entry in entries
            if entry.get("manager") == names.FIELD_MANAGER
            and entry.get("operation") == "Apply"
            and not entry.get("subresource")
        ]
    )


def _taken(manifest: Manifest, observed: Snapshot) -> Taken | None:
    live = observed.children.get((kind_of(manifest), name_of(manifest)))
    if live is None or observed.ours(live):
        return None
    owner = next((o for o in live["metadata"].get("ownerReferences") or () if o.get("controller")), None)
    if owner is None:
        return Taken(manifest, "nobody", leaving=False)
    label = (live["metadata"].get("labels") or {}).get(names.LABEL_EPD)
    return Taken(
        manifest,
        f"{owner['kind']} {owner['name']}",
        leaving=owner["kind"] == names.KIND and owner["name"] == label,
    )
