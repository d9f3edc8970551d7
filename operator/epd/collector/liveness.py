"""Which versions live, and whether an answer may be acted on. Pure, but for what `Guard` remembers; asks nobody.

In doubt a version lives: whoever names it, on whatever claim, keeps it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from epd.api.quantity import duration_text
from epd.api.types import ConnectorKind
from epd.collector.inputs import Declaration, Liveness
from epd.collector.seen import Listed, Root, SeenEPD

MOST_AGE: Final = 300.0
"""Seconds from the first question to the use of the answer. What starts meanwhile is shielded by the grace, whose
shortest is far above it by default (1 h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a namespace says of the versions on one root, before it is believed.

    Attributes:
        live: Version to users of the root that name it; other things that name it are not listed.
        expedited: Named by nothing but users of the root that wait for their entries to be removed.
        pods: Uids of all pods.
        declared: Layout and inputs of versions, where a user of the root tells them.
        unreadable: Users of the root whose version is unknown, and why.
    """

    live: Mapping[str, tuple[str, ...]]
    expedited: frozenset[str] = frozenset()
    pods: frozenset[str] = frozenset()
    declared: Mapping[str, Declaration] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)


def named_versions(listed: Listed, root: Root) -> Named:
    """Collect who names which version.

    An EPDDeployment that is being deleted counts until its last engine pod is gone. If it then still waits for its
    entries on this root to be removed, and nothing else names its versions, they are expedited.
    """
    manned = {pod.epd for pod in listed.pods if pod.engine}
    users: defaultdict[str, set[str]] = defaultdict(set)
    leaving: set[str] = set()
    for epd in listed.epds:
        if epd.deleting and epd.name not in manned:
            leaving |= epd.versions if epd.reclaims and epd.uses(root) else set()
            continue
        for version in epd.versions:
            users[version] |= {epd.name} if epd.uses(root) else set()
    for version in _used_by_workloads(listed):
        users[version] |= set()
    return Named(
        live={version: tuple(sorted(found)) for version, found in sorted(users.items())},
        expedited=frozenset(leaving - set(users)),
        pods=frozenset(pod.uid for pod in listed.pods),
        declared=_declared(listed.epds, root),
        unreadable={epd.name: epd.unreadable for epd in listed.epds if epd.unreadable and epd.uses(root)},
    )


class Guard:
    """Holds back answers that are suspiciously small: a wrong answer looks just like everything being dead.

    An answer is suspicious if it is empty after one that was not, or if less than half of the last valid one is still
    in it. It is believed once answers were suspicious without interruption for the grace. Answers that failed are
    none: they neither end nor prove a suspicion. A process that starts knows no last answer, so there only an empty one
    is suspicious; what is condemned by another still has its grace.
    """

    def __init__(self) -> None:
        self._last: frozenset[str] | None = None
        self._since: float | None = None

    def judge(self, named: Named, *, taken: float, grace: float) -> str:
        """Return why the answer taken at that time (monotonic, seconds) is not believed; empty if it is.

        Versions that are expedited did not vanish: the object that asks for their end is still there.
        """
        doubt = self._doubt(frozenset(named.live) | named.expedited)
        if doubt:
            # a first sighting proves nothing, whatever the grace
            first, self._since = self._since is None, taken if self._since is None else self._since
            left = self._since + grace - taken
            if first or left > 0:
                # not how long that is from now: words that count down would move a status with every pass
                return f"{doubt}; if that stays so for versionGracePeriod ({duration_text(grace)}), it is believed"
        self._last, self._since = frozenset(named.live), None
        return ""

    def _doubt(self, known: frozenset[str]) -> str:
        if not known:
            return "" if self._last == frozenset() else "nothing in the namespace names a version"
        kept, of = len((self._last or frozenset()) & known), len(self._last or ())
        return f"only {kept} of {of} versions that were named before still are" if 2 * kept < of else ""


def liveness(named: Named, *, taken: float, now: float, doubt: str = "") -> Liveness:
    """Return what may be acted on. `doubt` is what `Guard.judge` says; times are monotonic, in seconds."""
    message = doubt
    if named.unreadable:
        name, why = next(iter(sorted(named.unreadable.items())))
        message = (
            f"EPDDeployment {name} uses this claim and can't be read ({why}), so its version is unknown: correct it, or"
            " bring operator and CustomResourceDefinition to one release"
        )
    if now - taken > MOST_AGE:
        message = f"the API server took more than {MOST_AGE:.0f} s for the lists"
    return Liveness(
        valid=not message,
        live=named.live,
        expedited=frozenset() if message else named.expedited,
        pods=named.pods,
        taken=taken,
        message=message,
        declared=named.declared,
    )


def unknown(message: str, *, taken: float) -> Liveness:
    """Return the answer where there is none."""
    return Liveness(valid=False, live={}, taken=taken, message=message)


def _used_by_workloads(listed: Listed) -> Iterator[str]:
    yield from (pod.version for pod in listed.pods if pod.version)
    yield from (workload.version for workload in listed.workloads if workload.version and workload.replicas > 0)


def _declared(epds: tuple[SeenEPD, ...], root: Root) -> dict[str, Declaration]:
    """Two users may write one version in two layouts; the one with fewer guarantees is declared."""
    declared: dict[str, Declaration] = {}
    for epd in epds:
        if not (epd.version and epd.cache and epd.uses(root)) or epd.cache.connector is ConnectorKind.CUSTOM:
            continue
        if epd.cache.connector is ConnectorKind.EXAMPLE:
            declared[epd.version] = Declaration(layout="Example", inputs=epd.inputs)
        else:
            declared.setdefault(epd.version, Declaration(layout="Managed", inputs=epd.inputs))
    return declared
