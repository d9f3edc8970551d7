"""The encoder cache as its collector sees it: the condition `EncoderCacheHealthy`, and `status.encoderCache`.

Pure. Requests go on whatever it says: `Available` never depends on it, and `Ready` only on what somebody must mend
(`must_be_mended`). Figures are coarse, so that a status does not move with every entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from epd.api import names
from epd.api.collection import CollectorReport, VersionReport, VolumeReport
from epd.api.names import Reason
from epd.api.quantity import bytes_text, quantity_value
from epd.api.types import ConnectorKind, EncoderCacheStatus, EPDDeployment, encoder_cache_status
from epd.controller.conditions import Finding
from epd.controller.kinds import Manifest
from epd.controller.pods import Trouble, Workload, ready, worst
from epd.controller.reports import SILENT, Answer
from epd.controller.storage import claim_name
from epd.controller.workload import refused_pods

FIGURES: Final = 3
"""Significant digits of counts, as `bytes_text` has them of sizes: a store of 2 TiB moves by 10 GiB before its status
does."""

STEADY_SECONDS: Final = 600
"""After a run of this length the kubelet starts at its first back-off again (pkg/kubelet/kubelet.go): one crash in days
is a hiccup, and moves no condition of the whole."""

NO_TROUBLE: Final = frozenset({Reason.REDUCED_GUARANTEES, Reason.DRY_RUN, Reason.COLLECTION_DISABLED})
"""What a collector tells beside its troubles: true of the store, and wanted or borne so."""

PASSING: Final = frozenset(
    {Reason.OVER_WATERMARK, Reason.FOREIGN_DATA_DOMINATES, Reason.LIVENESS_UNKNOWN, Reason.CLOCK_UNRELIABLE,
     Reason.COLLECTION_FAILED, Reason.VERSION_IN_USE_BY_STRANGER, Reason.USERS_DISAGREE}
)  # fmt: skip
"""Troubles that load, an outage or other people bring and take away: no spec is unmet, and a `helm upgrade --wait` or
an alert on Ready that failed by them would tell of something else than it was made for."""


@dataclass(frozen=True, kw_only=True)
class Collector:
    """What is seen of the collector that serves an EPDDeployment."""

    deployment: Manifest | None = None
    ours: bool = True
    """False: the Deployment of its name is a stranger's."""
    pods: tuple[Manifest, ...] = ()
    answer: Answer = SILENT
    problem: Trouble | None = None
    """Why the claim's reconcile could not make it as it should be."""
    placed: bool = False
    """The claim is Bound and an engine pod has a node: the collector may run."""

    @property
    def missing(self) -> bool:
        """Whether one could be made and there is none."""
        return self.placed and self.deployment is None and self.problem is None


def kept(epd: EPDDeployment) -> bool:
    """Whether the operator keeps a store for the object: on a volume, and in a layout that it knows."""
    cache = epd.spec.encoder_cache
    return cache is not None and cache.volume is not None and cache.connector is not ConnectorKind.CUSTOM


def collected(epd: EPDDeployment) -> bool:
    """Whether the object asks for a collector."""
    cache = epd.spec.encoder_cache
    return kept(epd) and cache is not None and cache.garbage_collection.enabled


def finding(epd: EPDDeployment, collector: Collector) -> Finding | None:
    """The condition `EncoderCacheHealthy`; None where there is no store."""
    if not kept(epd):
        return None
    found = _finding(epd, collector)
    if collector.problem is not None and (found.ok or collector.problem.reason != Reason.USERS_DISAGREE):
        return Finding.false(collector.problem.reason, collector.problem.message)
    return found


def _finding(epd: EPDDeployment, collector: Collector) -> Finding:
    if collector.deployment is None:
        return _absent(epd, collector)
    if not collector.ours:
        name = collector.deployment["metadata"]["name"]
        return Finding.false(
            Reason.NAME_TAKEN,
            f"Deployment {epd.metadata.namespace}/{name} exists and is not ours, so that no collector can be made. "
            "Delete or rename it.",
        )
    return _reported(collector) if any(map(ready, collector.pods)) else _not_up(collector)


def must_be_mended(finding: Finding) -> bool:
    """Whether `Ready` goes with it: False, and by nothing that passes.

    Not when Unknown: a collector that is being made, moved or not reached leaves everything as the spec says, and comes
    after the engines, whose rollout is waited for.
    """
    return finding.status == "False" and finding.reason not in PASSING


def status(epd: EPDDeployment, claim: Manifest | None, report: CollectorReport | None) -> EncoderCacheStatus | None:
    """`status.encoderCache`; None without a volume."""
    if (name := claim_name(epd)) is None:
        return None
    live = (claim or {}).get("status") or {}
    return encoder_cache_status(
        name,
        phase=str(live.get("phase", "Missing" if claim is None else "Pending")),
        capacity=str((live.get("capacity") or {}).get("storage", "")),
        report=shown(report) if report is not None else None,
    )


def shown(report: CollectorReport) -> CollectorReport:
    """The report without what changes by itself, and with coarse figures."""
    return report.model_copy(
        update={
            "passes": min(report.passes, 1),
            "last_pass": "",
            "volume": VolumeReport(),
            "used_bytes": _coarse_bytes(report.used_bytes),
            "entries": _coarse(report.entries),
            "foreign_bytes": _coarse_bytes(report.foreign_bytes),
            "foreign_entries": _coarse(report.foreign_entries),
            "trash_bytes": _coarse_bytes(report.trash_bytes),
            "freed_bytes": _coarse_bytes(report.freed_bytes),
            "versions": tuple(_coarse_version(version) for version in report.versions),
        }
    )


def _coarse_version(version: VersionReport) -> VersionReport:
    return version.model_copy(
        update={"entries": _coarse(version.entries), "used_bytes": _coarse_bytes(version.used_bytes)}
    )


def _coarse_bytes(count: int) -> int:
    return int(quantity_value(bytes_text(count)))  # as the text beside it has it


def _coarse(count: int) -> int:
    step: int = 10 ** max(0, len(str(count)) - FIGURES)
    return count // step * step


def _absent(epd: EPDDeployment, collector: Collector) -> Finding:
    if not collected(epd):
        return Finding.true(
            Reason.COLLECTION_DISABLED, "garbageCollection.enabled is false: no collector runs, nothing is deleted"
        )
    if collector.placed:
        return Finding.unknown(Reason.STARTING, "the claim's collector is being made")
    return Finding.unknown(
        Reason.PENDING, "the claim's collector is made as soon as the claim is Bound and an engine pod has a node"
    )


def _not_up(collector: Collector) -> Finding:
    deployment = collector.deployment or {}
    if (failed := refused_pods(deployment.get("status") or {})) is not None:
        return Finding.false(Reason.COLLECTOR_NOT_RUNNING, failed.message)
    workload = Workload(field="encoderCache.garbageCollection", container=names.COLLECTOR_CONTAINER)
    starting = f"collector {deployment['metadata']['name']} is starting"
    if (trouble := worst(collector.pods, workload)) is None:
        return Finding.unknown(Reason.STARTING, starting)
    if trouble.reason in (Reason.CRASH_LOOP, Reason.OOM_KILLED) and any(map(_ran_long, collector.pods)):
        return Finding.unknown(Reason.STARTING, f"{starting} again: {trouble.message}")
    return Finding.false(Reason.COLLECTOR_NOT_RUNNING, f"{trouble.reason}: {trouble.message}")


def _ran_long(pod: Manifest) -> bool:
    """Whether what ended last in the pod had run for so long that it is no crash loop."""
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        now, last = (container.get(state) or {} for state in ("state", "lastState"))
        ended = now.get("terminated") or last.get("terminated") or {}
        if ended.get("startedAt") and ended.get("finishedAt"):
            ran = datetime.fromisoformat(ended["finishedAt"]) - datetime.fromisoformat(ended["startedAt"])
            return ran.total_seconds() >= STEADY_SECONDS
    return False


def _reported(collector: Collector) -> Finding:
    report = collector.answer.report
    if report is None:
        return Finding.unknown(Reason.COLLECTOR_NOT_RUNNING, f"the collector is up, but {collector.answer.words}")
    troubles = [t for t in report.troubles if t.reason not in NO_TROUBLE]
    if troubles:
        return Finding.false(troubles[0].reason, _together(t.message for t in troubles))
    told = [t for t in report.troubles if t.reason in NO_TROUBLE]
    if told:
        return Finding.true(told[0].reason, _together(t.message for t in told))
    if not report.passes:
        return Finding.unknown(Reason.STARTING, "the collector's first pass over the store is under way")
    return Finding.true(Reason.HEALTHY, f"the collector keeps the store on claim {report.claim} within its marks")


def _together(messages: Iterable[str]) -> str:
    return "; ".join(messages)
