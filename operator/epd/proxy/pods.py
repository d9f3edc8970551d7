"""The engines the proxy may use: read from pod objects, kept as state.

Pure. Never talks to the API server and never decides between members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from epd.api.names import ENGINE_CONTAINER, ENGINE_PORT_NAME, LABEL_MODEL_VERSION, LABEL_PAIRING, LABEL_ROLE, Role

Pod = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One engine. `address` is its base URL; `ready` says whether it is in rotation."""

    name: str
    role: Role
    pairing: str
    address: str
    ready: bool
    model_version: str = ""


def member_of(pod: Pod) -> Member | None:
    """Read a pod; None if it is no engine, or has no address yet.

    A pod is in rotation while its Ready condition is True and it isn't being deleted: endpoints and conditions follow a
    deletion only seconds later.
    """
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    labels = metadata.get("labels") or {}
    host, port = status.get("podIP"), _port(pod)
    if labels.get(LABEL_ROLE) not in set(Role) or not host or port is None:
        return None
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    return Member(
        name=metadata["name"],
        role=Role(labels[LABEL_ROLE]),
        pairing=labels.get(LABEL_PAIRING, ""),
        address=f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}",
        ready=conditions.get("Ready") == "True" and not metadata.get("deletionTimestamp"),
        model_version=labels.get(LABEL_MODEL_VERSION, ""),
    )


def _port(pod: Pod) -> int | None:
    for container in (pod.get("spec") or {}).get("containers") or ():
        if container.get("name") == ENGINE_CONTAINER:
            for port in container.get("ports") or ():
                if port.get("name") == ENGINE_PORT_NAME:
                    return int(port["containerPort"])
    return None


@dataclass(slots=True)
class Members:
    """The members last known, by name. `synced` becomes True with the first complete list and stays so."""

    synced: bool = False
    _by_name: dict[str, Member] = field(default_factory=dict)

    def all(self) -> tuple[Member, ...]:
        """All members, in rotation or not, by name."""
        return tuple(self._by_name[name] for name in sorted(self._by_name))

    def ready(self, role: Role) -> tuple[Member, ...]:
        """The members of `role` that are in rotation, by name."""
        return tuple(member for member in self.all() if member.role is role and member.ready)

    def replace(self, members: Iterable[Member]) -> None:
        """Take a complete list: who is not on it is gone."""
        self._by_name = {member.name: member for member in members}
        self.synced = True

    def replace_pods(self, pods: Iterable[Pod]) -> None:
        """Take a complete list of pod objects."""
        self.replace(member for pod in pods if (member := member_of(pod)))

    def apply_event(self, kind: str, pod: Pod) -> None:
        """Take one watch event: ADDED, MODIFIED or DELETED."""
        member = member_of(pod)
        if kind == "DELETED" or member is None:
            self._by_name.pop((pod.get("metadata") or {}).get("name", ""), None)
        else:
            self._by_name[member.name] = member
