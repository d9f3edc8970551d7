"""The reconcile of an object that is being deleted and still has entries on a claim that was brought.

    roles to 0 -> the collector deletes -> finalizer off

The only use of our only finalizer. `reclaim` decides; this reads, scales down, tells and lets go.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from epd.api import names
from epd.api.names import ConditionType, Reason
from epd.api.types import EPDDeployment
from epd.controller import conditions, kinds, observe, reclaim, replicas
from epd.controller.cluster import Cluster
from epd.controller.conditions import Finding
from epd.controller.errors import ClusterError, NamespaceTerminating, NotFound
from epd.controller.events import NORMAL, WARNING, Note, Recorder
from epd.controller.keys import ClaimKey, epd_key
from epd.controller.kinds import Manifest
from epd.controller.observe import Observed
from epd.controller.observe_collector import observe_collector
from epd.controller.outcome import Outcome
from epd.controller.reclaim import Going, Wait
from epd.controller.reconcile_claim import Problems
from epd.controller.report import write_status
from epd.controller.reports import Reports
from epd.controller.users import users_of
from epd.topology.storage import encoder_cache_claim

LOOK_SECONDS: Final = 5.0
"""How often to look while waiting, and how old a report may be: about the time that a small pass takes."""


class Leave:
    """See the module. Remembers per object how many passes its collector had made when its engines were gone."""

    def __init__(
        self,
        cluster: Cluster,
        recorder: Recorder,
        reports: Reports,
        problems: Problems,
        *,
        clock: Callable[[], datetime],
    ) -> None:
        self._cluster, self._recorder = cluster, recorder
        self._reports, self._problems = reports, problems
        self._clock = clock
        self._passes: dict[str, int] = {}

    def forget(self, key: str) -> None:
        """The object is gone."""
        self._passes.pop(key, None)

    async def reconcile(self, parent: Manifest) -> Outcome:
        """One look at an object with a deletionTimestamp."""
        if names.FINALIZER_ENCODER_CACHE not in (parent["metadata"].get("finalizers") or ()):
            return Outcome()  # its children go with it: they name it as owner
        if await namespace_terminating(self._cluster, self._recorder, parent, now=self._now()):
            await self._release(parent)
            return Outcome()
        try:
            epd = EPDDeployment.model_validate(parent)
        except ValidationError:
            words = "the object cannot be read by this version of the operator; its entries stay on their claim"
            await self._release(parent, Note(WARNING, Reason.RECLAIM_GIVEN_UP, words))
            return Outcome()
        if not reclaim.wanted(epd):
            await self._release(parent)  # reclaimPolicy was changed since: the way out for who does not want to wait
            return Outcome()
        observed = await observe.observe(self._cluster, epd)
        observed = await observe_collector(
            self._cluster, self._reports, self._problems, epd, observed, max_age=LOOK_SECONDS
        )
        await self._stop(observed)
        verdict = reclaim.decide(
            await self._going(epd, observed), own=reclaim.versions_named(parent), now=self._clock()
        )
        if isinstance(verdict, Wait):
            await self._tell(parent, epd, verdict.words)
            return Outcome(LOOK_SECONDS)
        await self._release(parent, verdict.note)
        return Outcome()

    async def _stop(self, observed: Observed) -> None:
        for live in observed.of_kind(kinds.DEPLOYMENT):
            if (body := replicas.stop(live)) is not None:
                await self._cluster.apply(body, manager=names.REPLICAS_FIELD_MANAGER)

    async def _going(self, epd: EPDDeployment, observed: Observed) -> Going:
        key = f"{epd.metadata.namespace}/{epd.metadata.name}"
        parents = [p for p in await self._cluster.list(kinds.EPD, epd.metadata.namespace) if epd_key(p) != key]
        engines = sum(names.LABEL_ROLE in (pod["metadata"].get("labels") or {}) for pod in observed.pods)
        report = observed.collector.answer.report
        if engines:
            self._passes.pop(key, None)
        elif report is not None:
            # A collector that was started anew counts from 0 again.
            self._passes[key] = min(report.passes, self._passes.get(key, report.passes))
        return Going(
            epd=epd,
            claim=observed.claim,
            collector=observed.collector,
            engines=engines,
            seen=self._passes.get(key),
            others=frozenset(version for parent in parents for version in reclaim.versions_named(parent)),
            alone=_alone(epd, parents),
        )

    async def _tell(self, parent: Manifest, epd: EPDDeployment, words: str) -> None:
        held = {ConditionType(c.type): Finding(c.status, c.reason, c.message) for c in epd.status.conditions}
        text = f"its entries go first (reclaimPolicy: Delete): {words}"
        findings = {
            **held,
            ConditionType.READY: Finding.false(Reason.RECLAIMING, text),
            ConditionType.RECONCILING: Finding.true(Reason.RECLAIMING, text),
        }
        merged = conditions.merge(epd.status.conditions, findings, generation=epd.metadata.generation, now=self._now())
        said = [c.model_dump(mode="json", by_alias=True, exclude_none=True) for c in merged]
        new = {**(parent.get("status") or {}), "conditions": said}
        first = held.get(ConditionType.READY, Finding.unknown("", "")).reason != Reason.RECLAIMING
        if await write_status(self._cluster, parent, new) and first:
            await self._recorder.record(parent, Note(NORMAL, Reason.RECLAIMING, text), now=self._now())

    async def _release(self, parent: Manifest, note: Note | None = None) -> None:
        if note is not None:
            await self._recorder.record(parent, note, now=self._now())
        await set_finalizer(self._cluster, parent, wanted=False)

    def _now(self) -> str:
        return self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")


async def set_finalizer(cluster: Cluster, parent: Manifest, *, wanted: bool) -> None:
    """Put our finalizer on, or take it off; others' stay. Conflict if the object has changed since it was read."""
    finalizers = reclaim.with_finalizer(parent, wanted=wanted)
    if finalizers is None:
        return
    meta = parent["metadata"]
    # The list is replaced whole, so nobody may have changed it meanwhile.
    patch = {"metadata": {"finalizers": finalizers, "uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}}
    try:
        await cluster.patch(parent, patch)
    except NotFound:
        if wanted:
            raise


async def namespace_terminating(cluster: Cluster, recorder: Recorder, parent: Manifest, *, now: str) -> bool:
    """Whether nothing can be made in the namespace any more, asked by an Event that is not kept.

    Namespaces are not read: an operator of a few namespaces may have no right to.
    """
    probe = recorder.event(parent, Note(NORMAL, Reason.RECLAIMING, ""), now)
    try:
        await cluster.create(probe, dry_run=True)
    except NamespaceTerminating:
        return True
    except ClusterError:
        pass  # it is there already, or could not be asked: the object waits as it would otherwise
    return False


def _alone(epd: EPDDeployment, parents: list[Manifest]) -> bool:
    claim = encoder_cache_claim(epd)
    if claim is None:
        return True
    others = users_of(ClaimKey(epd.metadata.namespace, claim.claim_name), parents)
    return not others.unreadable and all(root.sub_path != claim.sub_path for root in others.roots)
