"""The engines the proxy may use: read from pod objects, kept as state.

Pure. Never talks to the API server and never decides between members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from epd.api.names import (
    ENGINE_CONTAINER,
    ENGINE_PORT_NAME,
    ENGINE_TLS_PORT_NAME,
    LABEL_MODEL_VERSION,
    LABEL_PAIRING,
    LABEL_ROLE,
    Role,
)

Pod = Mapping[str, Any]
_SECURE: Final = "https"
_SCHEMES: Final = {ENGINE_PORT_NAME: "http", ENGINE_TLS_PORT_NAME: _SECURE}
"""Name of an engine's port -> what it speaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One engine. `address` is its base URL; `ready` says whether it is in rotation."""

    name: str
    role: Role
    pairing: str
    address: str
    ready: bool
    model_version: str = ""
    push_address: str = ""
    """Where an engine listens for embeddings that encoders push to it (`tcp://host:port`)."""


def member_of(pod: Pod, *, tls: bool = False) -> Member | None:
    """Read a pod; None if it is no engine, has no address yet, or speaks TLS and `tls` doesn't say that the proxy can.

    The name of its port says what it speaks, `http` or `https`: while TLS comes with a rollout, there are both. Names
    come from the API server, so nobody on the way to an engine can change them.

    A pod is in rotation while its Ready condition is True and it isn't being deleted: endpoints and conditions follow a
    deletion only seconds later.
    """
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    labels = metadata.get("labels") or {}
    host, base = status.get("podIP"), _base(pod)
    if labels.get(LABEL_ROLE) not in set(Role) or not host or base is None or (base[0] == _SECURE and not tls):
        return None
    scheme, port = base
    conditions = {c.get("type"): c.get("status") for c in status.get("conditions") or ()}
    return Member(
        name=metadata["name"],
        role=Role(labels[LABEL_ROLE]),
        pairing=labels.get(LABEL_PAIRING, ""),
        address=f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}",
        ready=conditions.get("Ready") == "True" and not metadata.get("deletionTimestamp"),
        model_version=labels.get(LABEL_MODEL_VERSION, ""),
    )


def what_is_read(pod: Pod) -> Pod:
    """A pod with nothing but what `member_of` reads."""
    metadata, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
    return {
        "metadata": {name: metadata[name] for name in ("name", "labels", "deletionTimestamp") if name in metadata},
        "spec": {
            "containers": [
                {"name": container.get("name"), "ports": container.get("ports")}
                for container in spec.get("containers") or ()
                if container.get("name") == ENGINE_CONTAINER
            ]
        },
        "status": {name: status[name] for name in ("podIP", "conditions") if name in status},
    }


def _base(pod: Pod) -> tuple[str, int] | None:
    """Scheme and port of the engine."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        if container.get("name") == ENGINE_CONTAINER:
            for port in container.get("ports") or ():
                if (scheme := _SCHEMES.get(str(port.get("name")))) is not None:
                    return scheme, int(port["containerPort"])
    return None


@dataclass(slots=True)
class _Index:
    """Members in rotation, by what engines are chosen by."""

    ready: dict[Role, tuple[Member, ...]]
    paired: dict[tuple[Role, str], tuple[Member, ...]]
    pairings: dict[Role, frozenset[str]]

    @staticmethod
    def of(members: Iterable[Member]) -> _Index:
        ready: dict[Role, list[Member]] = {}
        paired: dict[tuple[Role, str], list[Member]] = {}
        for member in members:
            if member.ready:
                ready.setdefault(member.role, []).append(member)
                paired.setdefault((member.role, member.pairing), []).append(member)
        return _Index(
            ready={role: tuple(group) for role, group in ready.items()},
            paired={key: tuple(group) for key, group in paired.items()},
            pairings={role: frozenset(member.pairing for member in group) for role, group in ready.items()},
        )


class Members:
    """The members last known, by name. `synced` becomes True with the first complete list and stays so.

    Answers what requests ask from tuples that are made at the first question after a change: requests come by the
    thousand between two changes, and changes by the thousand when a large deployment rolls. `tls` says that there is
    what it takes to reach pods by TLS, those that speak it.
    """

    def __init__(self, *, tls: bool = False) -> None:
        self._tls = tls
        self.synced = False
        self.version = 0
        """Grows with every change."""
        self._by_name: dict[str, Member] = {}
        self._index: _Index | None = None
        self._listeners: list[Callable[[], None]] = []

    def all(self) -> tuple[Member, ...]:
        """All members, in rotation or not, by name."""
        return tuple(self._by_name[name] for name in sorted(self._by_name))

    def ready(self, role: Role, pairing: str | None = None) -> tuple[Member, ...]:
        """The members of `role` that are in rotation, by name; only those of `pairing`, if given."""
        index = self._index or self._indexed()
        return index.ready.get(role, ()) if pairing is None else index.paired.get((role, pairing), ())

    def pairings(self, role: Role) -> frozenset[str]:
        """The pairings of the members of `role` that are in rotation."""
        return (self._index or self._indexed()).pairings.get(role, frozenset())

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have `listener` called after every change."""
        self._listeners.append(listener)

    def replace(self, members: Iterable[Member]) -> None:
        """Take a complete list: who is not on it is gone."""
        by_name = {member.name: member for member in members}
        self.synced = True
        if by_name != self._by_name:
            self._by_name = by_name
            self._changed()

    def replace_pods(self, pods: Iterable[Pod]) -> None:
        """Take a complete list of pod objects."""
        self.replace(member for pod in pods if (member := member_of(pod, tls=self._tls)))

    def apply_event(self, kind: str, pod: Pod) -> None:
        """Take one watch event: ADDED, MODIFIED or DELETED."""
        member = member_of(pod, tls=self._tls)
        name = (pod.get("metadata") or {}).get("name", "")
        if kind == "DELETED":
            member = None
        if member == self._by_name.get(name):
            # most events are about something else, such as the time of a probe
            return
        if member is None:
            del self._by_name[name]
        else:
            self._by_name[name] = member
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._index = None
        for listener in self._listeners:
            listener()

    def _indexed(self) -> _Index:
        self._index = _Index.of(self.all())
        return self._index
