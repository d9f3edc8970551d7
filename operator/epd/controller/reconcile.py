"""One reconcile: the only orchestration. Level-triggered: what happened is never asked, only what is.

    GET parent -> LIST children -> desired -> plan -> execute -> status -> write if changed

Holds nothing but memories of what was applied (see `plan`) and rendered, which may be lost at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from pydantic import ValidationError

from epd.api.names import Reason
from epd.api.types import Condition, EPDDeployment, Status
from epd.controller import cache_news, execute, kinds, observe, plan, reclaim, revisions, status
from epd.controller.build import Build
from epd.controller.cluster import Cluster
from epd.controller.conditions import Finding
from epd.controller.errors import Forbidden, NamespaceTerminating, NotFound, Rejected, Retryable
from epd.controller.events import Recorder, news
from epd.controller.kinds import Manifest, kind_of, name_of
from epd.controller.leave import Leave, set_finalizer
from epd.controller.metrics import CacheGauges, ConditionGauges
from epd.controller.observe import Observed
from epd.controller.observe_collector import claim_to_look_at, observe_collector
from epd.controller.outcome import Outcome
from epd.controller.reconcile_claim import Problems
from epd.controller.report import unreadable, write_status
from epd.controller.reports import Reports
from epd.controller.write import NameTaken

logger = logging.getLogger(__name__)

UNWATCHED_POLL_SECONDS: Final = 30.0
"""How often to look at what sends no watch event of ours: Events of a claim, a claim that was brought, a stranger's
object that has a name of ours."""


class Reconciler:
    """Reconciles keys `namespace/name`. Raises `errors.Retryable` for the queue to try again."""

    def __init__(
        self,
        cluster: Cluster,
        build: Build,
        recorder: Recorder,
        reports: Reports,
        problems: Problems,
        *,
        on_gone: Callable[[str], None] = lambda _key: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster, self._build, self._recorder = cluster, build, recorder
        self._reports, self._problems = reports, problems
        self._leave = Leave(cluster, recorder, reports, problems, clock=clock)
        self._gauges, self._cache_gauges = ConditionGauges(), CacheGauges()
        self._on_gone = on_gone
        self._clock = clock
        self._memos: dict[str, dict[str, plan.Mark]] = {}
        self._rendered: dict[str, tuple[tuple[str, int, bool], tuple[Manifest, ...]]] = {}

    async def reconcile(self, key: str) -> Outcome:
        """Bring one object's children and status to what its spec says, as far as one pass can."""
        namespace, name = key.split("/", 1)
        try:
            parent = await self._cluster.get(kinds.EPD, namespace, name)
        except NotFound:
            self.forget(key)
            return Outcome()
        if parent["metadata"].get("deletionTimestamp"):
            return await self._leave.reconcile(parent)
        try:
            epd = EPDDeployment.model_validate(parent)
        except ValidationError as e:
            await self._publish(key, parent, None, unreadable(parent, e, now=self._now()))
            return Outcome(stalled=True)
        await set_finalizer(self._cluster, parent, wanted=reclaim.wanted(epd))  # before there is anything to remove
        try:
            observed = await observe.observe(self._cluster, epd)
            observed = await observe_collector(self._cluster, self._reports, self._problems, epd, observed)
            observed, circumstances = await self._act(key, epd, observed)
        except NamespaceTerminating:
            return Outcome()
        facts = self._build.facts(epd)
        new = status.status_of(epd, facts, observed, circumstances, now=self._now())
        self._show_cache(key, new)
        await self._publish(
            key, parent, (epd.status, new), new.model_dump(mode="json", by_alias=True, exclude_none=True)
        )
        if circumstances.retrying is not None:
            raise Retryable(circumstances.retrying.message)
        also = claim_to_look_at(epd, observed)
        return Outcome(_next_look(observed, circumstances), stalled=circumstances.stalled is not None, also=also)

    def forget(self, key: str) -> None:
        """The object is gone."""
        self._memos.pop(key, None)
        self._rendered.pop(key, None)
        self._leave.forget(key)
        self._reports.forget(key)
        self._on_gone(key)
        self._gauges.report(key, {})
        self._cache_gauges.report(key)

    async def _act(self, key: str, epd: EPDDeployment, observed: Observed) -> tuple[Observed, status.Circumstances]:
        if (problem := self._build.problem(epd)) is not None:
            return observed, status.Circumstances(stalled=problem)
        desired = self._desired(key, epd, preflight=observed.preflight_due)
        deployments = execute.role_deployments(epd, desired)
        sources = observed.config_maps | {name_of(m) for m in desired if kind_of(m) == kinds.CONFIG_MAP}
        revised = observed.of_kind(kinds.CONTROLLER_REVISION)
        renderings = revisions.resolve(deployments, revised, config_maps=sources)
        observed = await observe.fetch_absent(self._cluster, observed, (*desired, *renderings.write))
        desired = tuple(execute.kept(manifest, deployments, renderings) for manifest in desired)
        if epd.spec.paused:
            left_alone = execute.differs(desired, observed)
            return observed, status.Circumstances(left_alone=left_alone, outdated=renderings.outdated)
        executor = execute.Executor(self._cluster, self._memos.setdefault(key, {}), observed)
        stalled = retrying = None
        try:
            await executor.execute(epd, desired, renderings)
        except NameTaken as e:
            stalled = Finding.true(Reason.NAME_TAKEN, str(e))
        except Rejected as e:
            stalled = Finding.true(Reason.REJECTED_BY_API_SERVER, str(e))
        except Forbidden as e:
            retrying = Finding.true(Reason.RETRYING, str(e))
        return executor.observed, status.Circumstances(stalled=stalled, retrying=retrying, outdated=renderings.outdated)

    def _desired(self, key: str, epd: EPDDeployment, *, preflight: bool) -> tuple[Manifest, ...]:
        # Rendering is most of the CPU time of a reconcile without work, and depends on nothing else.
        inputs = (epd.metadata.uid, epd.metadata.generation, preflight)
        held = self._rendered.get(key)
        if held is None or held[0] != inputs:
            held = self._rendered[key] = (inputs, self._build.desired(epd, preflight=preflight))
        return held[1]

    def _show_cache(self, key: str, new: Status) -> None:
        if (stored := new.encoder_cache) is not None:
            self._cache_gauges.report(key, stored.claim, used=stored.used_bytes, entries=stored.entries)
        else:
            self._cache_gauges.report(key)

    async def _publish(self, key: str, parent: Manifest, readable: tuple[Status, Status] | None, new: Manifest) -> None:
        before = [Condition.model_validate(c) for c in (parent.get("status") or {}).get("conditions") or ()]
        after = [Condition.model_validate(c) for c in new["conditions"]]
        self._gauges.report(key, {c.type: c.status for c in after})
        if await write_status(self._cluster, parent, new):
            for note in (*news(before, after), *(cache_news.news(*readable) if readable else ())):
                await self._recorder.record(parent, note, now=self._now())

    def _now(self) -> str:
        return self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")


def _next_look(observed: Observed, circumstances: status.Circumstances) -> float | None:
    """When to come back without being told: after what no watch of ours reports."""
    taken = circumstances.stalled is not None and circumstances.stalled.reason == Reason.NAME_TAKEN
    return UNWATCHED_POLL_SECONDS if observed.claim_pending or observed.stuck_pods or taken else None
