"""What the cluster has of one EPDDeployment: the only place that says what is listed and fetched.

Reads by complete lists of one namespace, by label, then sorts by owner. Writes nothing, decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from epd.api import names
from epd.api.names import Role
from epd.api.types import EPDDeployment
from epd.controller import kinds
from epd.controller.cache import Collector
from epd.controller.cluster import Cluster
from epd.controller.errors import NotFound
from epd.controller.kinds import Kind, Manifest, controlled_by, kind_of, name_of, uid_of
from epd.controller.plan import ChildKey
from epd.controller.pods import stuck_creating
from epd.controller.storage import Storage, claim_name
from epd.manifests import config_map_of

STUCK_PODS_ASKED_ABOUT = 4
"""Events are listed for so many pods at most that hang in ContainerCreating: one per role and proxy tells the cause."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """A snapshot. `children` holds every listed child by kind and name, whoever owns it."""

    owner_uid: str
    children: Mapping[ChildKey, Manifest] = field(default_factory=dict)
    pods: tuple[Manifest, ...] = ()
    replica_sets: tuple[Manifest, ...] = ()
    """Listed only when a connector's ConfigMap is named by nothing else."""
    claim_wanted: bool = False
    claim: Manifest | None = None
    claim_events: tuple[Manifest, ...] = ()
    pod_events: tuple[Manifest, ...] = ()
    collector: Collector = field(default_factory=Collector)

    def child(self, kind: Kind, name: str) -> Manifest | None:
        """A child that is ours, or None."""
        live = self.children.get((kind, name))
        return live if live is not None and self.ours(live) else None

    def ours(self, live: Manifest) -> bool:
        """Whether we made it: we are its controller, or it is a claim of ours that Retain leaves without owner."""
        if controlled_by(live, self.owner_uid):
            return True
        if kind_of(live) != kinds.PERSISTENT_VOLUME_CLAIM:
            return False
        owned = any(owner.get("controller") for owner in live["metadata"].get("ownerReferences") or ())
        made = (live["metadata"].get("labels") or {}).get(names.LABEL_MANAGED_BY) == names.FIELD_MANAGER
        return made and not owned

    def prunable(self, live: Manifest) -> bool:
        """Whether it may go when it is no longer wanted."""
        # Only what we are the controller of: a claim under Retain has no owner, and is never deleted here.
        if not controlled_by(live, self.owner_uid) or live["metadata"].get("deletionTimestamp"):
            return False
        match kind_of(live):
            case kinds.CONTROLLER_REVISION:
                return False  # history: `revisions` bounds it
            case kinds.PERSISTENT_VOLUME_CLAIM:
                # A claim that the spec no longer names goes when its last pod is gone: a pod that is put on another
                # node in the middle of the rollout could not mount a claim that is being deleted. One that was made
                # from a template, and is named as one that was brought since, is still the spec's.
                kept = self.claim is not None and name_of(live) == name_of(self.claim)
                return not kept and not any(mounts_claim(p, name_of(live)) for p in self.pods)
            case kinds.CONFIG_MAP:
                return name_of(live) not in self.mounted_config_maps
            case _:
                return True

    @property
    def mounted_config_maps(self) -> frozenset[str]:
        """Connectors' sources that may still start a pod: of pods, scaled ReplicaSets, templates live and kept."""
        scaled = (rs for rs in self.replica_sets if rs["spec"].get("replicas", 1) > 0)
        specs = [
            *(pod["spec"] for pod in self.pods),
            *(m["spec"]["template"]["spec"] for m in (*scaled, *self.of_kind(kinds.DEPLOYMENT))),
            *(r["data"]["template"]["spec"] for r in self.of_kind(kinds.CONTROLLER_REVISION)),
        ]
        return frozenset(name for spec in specs if (name := config_map_of(spec)))

    @property
    def config_maps(self) -> frozenset[str]:
        """Names of our ConfigMaps."""
        return frozenset(map(name_of, self.of_kind(kinds.CONFIG_MAP)))

    def of_kind(self, kind: Kind) -> tuple[Manifest, ...]:
        """Our children of one kind."""
        return tuple(live for (k, _), live in self.children.items() if k == kind and self.ours(live))

    def pods_of(self, role: Role) -> tuple[Manifest, ...]:
        """Engine pods of a role."""
        return tuple(p for p in self.pods if _labels(p).get(names.LABEL_ROLE) == role)

    def component_pods(self, component: str) -> tuple[Manifest, ...]:
        """Pods of a component that is no engine, such as the proxy."""
        return tuple(
            p
            for p in self.pods
            if _labels(p).get(names.LABEL_COMPONENT) == component and names.LABEL_ROLE not in _labels(p)
        )

    @property
    def claim_pending(self) -> bool:
        """Whether a claim is wanted that is not there or not Bound."""
        return self.claim_wanted and (self.claim is None or not bound(self.claim))

    @property
    def stuck_pods(self) -> tuple[Manifest, ...]:
        """Pods of which only Events can say why they do not start."""
        return tuple(sorted((p for p in self.pods if stuck_creating(p)), key=name_of))

    @property
    def preflight_job(self) -> Manifest | None:
        """The newest preflight Job."""
        jobs = (
            j for j in self.of_kind(kinds.JOB) if _labels(j).get(names.LABEL_COMPONENT) == names.COMPONENT_PREFLIGHT
        )
        return max(jobs, key=lambda job: str(job["metadata"].get("creationTimestamp", "")), default=None)

    @property
    def storage(self) -> Storage:
        """What `storage.finding` judges."""
        return Storage(
            claim=self.claim,
            claim_events=self.claim_events,
            preflight=self.preflight_job,
            preflight_pods=self.component_pods(names.COMPONENT_PREFLIGHT),
        )

    @property
    def preflight_due(self) -> bool:
        """Whether the claim may be checked: it is Bound and an engine pod has a node, or a check exists already.

        A check before that would make the volume controller choose a node without the devices that engines need.
        """
        if self.claim is None or not bound(self.claim):
            return False
        return self.placed or self.preflight_job is not None

    @property
    def placed(self) -> bool:
        """Whether the claim is Bound and an engine pod has a node."""
        engines = (p for p in self.pods if names.LABEL_ROLE in _labels(p))
        return self.claim is not None and bound(self.claim) and any(p["spec"].get("nodeName") for p in engines)

    def with_children(self, live: Iterable[Manifest], *, gone: Iterable[Manifest] = ()) -> Observed:
        """The snapshot with newer states of some children: what an apply answered is newer than the list before it."""
        children = dict(self.children)
        for manifest in live:
            children[kind_of(manifest), name_of(manifest)] = manifest
        for manifest in gone:
            children.pop((kind_of(manifest), name_of(manifest)), None)
        claim = self.claim
        if claim is not None:
            claim = children.get((kinds.PERSISTENT_VOLUME_CLAIM, name_of(claim)), claim)
        return replace(self, children=children, claim=claim)


async def observe(cluster: Cluster, epd: EPDDeployment) -> Observed:
    """List everything with our label, and what the claim and stuck pods have to say."""
    namespace, labels = epd.metadata.namespace, f"{names.LABEL_EPD}={epd.metadata.name}"
    *lists, pods = await asyncio.gather(
        *(cluster.list(kind, namespace, labels=labels) for kind in (*kinds.CHILDREN, kinds.POD))
    )
    children = {(kind_of(m), name_of(m)): m for listed in lists for m in listed}
    seen = Observed(
        owner_uid=epd.metadata.uid,
        children=children,
        pods=pods,
        claim_wanted=claim_name(epd) is not None,
        claim=await _claim(cluster, epd, children),
    )
    if seen.config_maps - seen.mounted_config_maps:
        seen = replace(seen, replica_sets=await cluster.list(kinds.REPLICA_SET, namespace, labels=labels))
    claim_events, *pod_events = await asyncio.gather(
        _events(cluster, seen.claim if seen.claim_pending else None),
        *(_events(cluster, pod) for pod in seen.stuck_pods[:STUCK_PODS_ASKED_ABOUT]),
    )
    return replace(seen, claim_events=claim_events, pod_events=tuple(e for found in pod_events for e in found))


async def fetch_absent(cluster: Cluster, observed: Observed, desired: Iterable[Manifest]) -> Observed:
    """The snapshot with objects that bear a wanted child's name without our label, so that none is taken over."""
    absent = [m for m in desired if (kind_of(m), name_of(m)) not in observed.children]
    found = await asyncio.gather(*(_get(cluster, kind_of(m), m["metadata"]["namespace"], name_of(m)) for m in absent))
    return observed.with_children(live for live in found if live is not None)


async def _claim(cluster: Cluster, epd: EPDDeployment, children: Mapping[ChildKey, Manifest]) -> Manifest | None:
    if (name := claim_name(epd)) is None:
        return None
    listed = children.get((kinds.PERSISTENT_VOLUME_CLAIM, name))
    return listed or await _get(cluster, kinds.PERSISTENT_VOLUME_CLAIM, epd.metadata.namespace, name)


async def _get(cluster: Cluster, kind: Kind, namespace: str, name: str) -> Manifest | None:
    try:
        return await cluster.get(kind, namespace, name)
    except NotFound:
        return None


async def _events(cluster: Cluster, manifest: Manifest | None) -> tuple[Manifest, ...]:
    if manifest is None:
        return ()
    fields = f"involvedObject.uid={uid_of(manifest)}"
    return await cluster.list(kinds.EVENT, manifest["metadata"]["namespace"], fields=fields)


def mounts_claim(pod: Manifest, claim: str) -> bool:
    """Whether a pod has a volume of this claim."""
    volumes = pod["spec"].get("volumes") or ()
    return any((v.get("persistentVolumeClaim") or {}).get("claimName") == claim for v in volumes)


def _labels(manifest: Manifest) -> dict[str, str]:
    return manifest["metadata"].get("labels") or {}


def bound(claim: Manifest) -> bool:
    """Whether a claim has its volume."""
    return (claim.get("status") or {}).get("phase") == "Bound"
