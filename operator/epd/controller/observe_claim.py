"""What the cluster has of one claim and its collectors: the only place that says what is listed for a claim's key.

Reads by complete lists of the namespace. Writes nothing, decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from epd.api import names
from epd.controller import kinds
from epd.controller.cluster import Cluster
from epd.controller.errors import NotFound
from epd.controller.keys import ClaimKey, collected_claim
from epd.controller.kinds import Kind, Manifest, kind_of, name_of
from epd.controller.observe import bound, mounts_claim
from epd.controller.plan import ChildKey

COLLECTOR_KINDS: Final = (kinds.SERVICE_ACCOUNT, kinds.ROLE, kinds.ROLE_BINDING, kinds.DEPLOYMENT)
"""What a collector consists of."""


@dataclass(frozen=True, kw_only=True)
class ObservedClaim:
    """A snapshot. `children` are those of all collectors of the claim, and whatever else has a name of theirs."""

    key: ClaimKey
    parents: tuple[Manifest, ...] = ()
    claim: Manifest | None = None
    children: Mapping[ChildKey, Manifest] = field(default_factory=dict)
    pods: tuple[Manifest, ...] = ()

    def child(self, kind: Kind, name: str) -> Manifest | None:
        """A child that is ours, or None."""
        live = self.children.get((kind, name))
        return live if live is not None and self.ours(live) else None

    def ours(self, live: Manifest) -> bool:
        """Whether it is a collector's: by its labels, or (somebody took those) by owners of our kind alone."""
        return collector_of_ours(live)

    def prunable(self, live: Manifest) -> bool:
        """Whether it may go when it is no longer wanted."""
        leaving = live["metadata"].get("deletionTimestamp")
        return self.ours(live) and collected_claim(live) == self.key.claim and not leaving

    @property
    def placed(self) -> bool:
        """Whether the claim is Bound and an engine pod that mounts it has a node.

        A collector before that would make the volume controller choose a node without the devices that engines need.
        """
        engines = (p for p in self.pods if names.LABEL_ROLE in (p["metadata"].get("labels") or {}))
        mounted = (mounts_claim(p, self.key.claim) and p["spec"].get("nodeName") for p in engines)
        return self.claim is not None and bound(self.claim) and any(mounted)

    @property
    def access_modes(self) -> tuple[str, ...]:
        """The claim's; empty when it is not there."""
        return tuple((self.claim or {}).get("spec", {}).get("accessModes") or ())

    def collector_pods(self, collector: str) -> tuple[Manifest, ...]:
        """Pods of one collector."""
        return tuple(p for p in self.pods if _label(p, names.LABEL_COLLECTOR) == collector)

    def with_children(self, live: Iterable[Manifest], *, gone: Iterable[Manifest] = ()) -> ObservedClaim:
        """The snapshot with newer states of some children."""
        children = {**self.children, **{(kind_of(m), name_of(m)): m for m in live}}
        for manifest in gone:
            children.pop((kind_of(manifest), name_of(manifest)), None)
        return replace(self, children=children)


def collector_of_ours(live: Manifest) -> bool:
    """Whether an object under a collector's name was made by us. Nothing controls what several objects own."""
    owners: list[dict[str, Any]] = live["metadata"].get("ownerReferences") or []
    if any(owner.get("controller") for owner in owners):
        return False
    made = _label(live, names.LABEL_MANAGED_BY) == names.FIELD_MANAGER and bool(_label(live, names.LABEL_COLLECTOR))
    return made or (bool(owners) and all(owner.get("kind") == names.KIND for owner in owners))


def node_beside(collector: Manifest | None, pods: Iterable[Manifest], claim: str) -> str:
    """The node for a collector of a claim that one node at a time can mount: that of the engines which mount it.

    It stays where it was made for while an engine is there, and while there is none; empty where nothing tells.
    """
    template = collector["spec"]["template"]["metadata"] if collector is not None else {}
    made_for = str((template.get("annotations") or {}).get(names.ANNOTATION_NODE, ""))
    nodes = {
        str(pod["spec"].get("nodeName") or "")
        for pod in pods
        if names.LABEL_ROLE in (pod["metadata"].get("labels") or {})
        and not pod["metadata"].get("deletionTimestamp")
        and mounts_claim(pod, claim)
    } - {""}
    return made_for if made_for in nodes or not nodes else min(nodes)


async def observe_claim(cluster: Cluster, key: ClaimKey) -> ObservedClaim:
    """List the namespace's EPDDeployments, the claim's collectors, and all pods of ours."""
    ours = f"{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER}"
    parents, pods, *lists = await asyncio.gather(
        cluster.list(kinds.EPD, key.namespace),
        cluster.list(kinds.POD, key.namespace, labels=ours),
        *(cluster.list(kind, key.namespace, labels=names.LABEL_COLLECTOR) for kind in COLLECTOR_KINDS),
    )
    children = ((kind_of(m), name_of(m), m) for listed in lists for m in listed if collected_claim(m) == key.claim)
    return ObservedClaim(
        key=key,
        parents=parents,
        claim=await _get(cluster, kinds.PERSISTENT_VOLUME_CLAIM, key.namespace, key.claim),
        children={(kind, name): m for kind, name, m in children},
        pods=pods,
    )


async def fetch_absent(cluster: Cluster, seen: ObservedClaim, desired: Iterable[Manifest]) -> ObservedClaim:
    """The snapshot with objects that bear a wanted child's name without our label, so that none is taken over."""
    absent = [m for m in desired if (kind_of(m), name_of(m)) not in seen.children]
    found = await asyncio.gather(*(_get(cluster, kind_of(m), seen.key.namespace, name_of(m)) for m in absent))
    return seen.with_children(live for live in found if live is not None)


async def _get(cluster: Cluster, kind: Kind, namespace: str, name: str) -> Manifest | None:
    try:
        return await cluster.get(kind, namespace, name)
    except NotFound:
        return None


def _label(manifest: Manifest, label: str) -> str:
    return str((manifest["metadata"].get("labels") or {}).get(label, ""))
