"""What an EPDDeployment sees of the collector that serves it: its Deployment, its pods, what it reports.

The claim's own reconcile makes it; this only looks. Writes nothing, decides nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from epd.api import names
from epd.api.types import EPDDeployment
from epd.controller import cache, keys, kinds, pods
from epd.controller.cache import Collector
from epd.controller.cluster import Cluster
from epd.controller.errors import NotFound
from epd.controller.keys import ClaimKey
from epd.controller.kinds import Manifest
from epd.controller.observe import Observed
from epd.controller.observe_claim import collector_of_ours, node_beside
from epd.controller.reconcile_claim import Problems
from epd.controller.reports import FRESH_SECONDS, SILENT, Answer, Reports
from epd.topology.storage import encoder_cache_claim


async def observe_collector(
    cluster: Cluster,
    reports: Reports,
    problems: Problems,
    epd: EPDDeployment,
    observed: Observed,
    *,
    max_age: float = FRESH_SECONDS,
) -> Observed:
    """The snapshot with its collector; as it was where the operator keeps no store. `max_age` is the report's, in s."""
    claim = encoder_cache_claim(epd)
    if claim is None or not cache.kept(epd):
        return observed
    namespace, name = epd.metadata.namespace, names.collector(claim.claim_name, claim.sub_path)
    deployment, collectors = await asyncio.gather(
        _deployment(cluster, namespace, name),
        cluster.list(kinds.POD, namespace, labels=f"{names.LABEL_COLLECTOR}={name}"),
    )
    answer = SILENT
    if (speaker := _speaker(collectors)) is not None:
        key = f"{namespace}/{epd.metadata.name}"
        answer = _of_this(await reports.read(key, speaker, max_age=max_age), claim.claim_name, claim.sub_path)
    collector = Collector(
        deployment=deployment,
        ours=deployment is None or collector_of_ours(deployment),
        pods=collectors,
        answer=answer,
        problem=problems.get((ClaimKey(namespace, claim.claim_name), claim.sub_path)),
        placed=observed.placed,
    )
    return replace(observed, collector=collector)


def claim_to_look_at(epd: EPDDeployment, observed: Observed) -> tuple[str, ...]:
    """The key of the claim whose collector could be made now, or is not where its engines are."""
    claim, collector = encoder_cache_claim(epd), observed.collector.deployment
    if claim is None or not cache.collected(epd):
        return ()
    if not observed.collector.missing and not _strayed(collector, observed, claim.claim_name):
        return ()
    return (str(keys.ClaimKey(epd.metadata.namespace, claim.claim_name)),)


def _strayed(collector: Manifest | None, observed: Observed, claim: str) -> bool:
    made_for = ((collector or {}).get("spec", {}).get("template", {}).get("metadata", {}).get("annotations") or {}).get(
        names.ANNOTATION_NODE
    )
    return made_for is not None and node_beside(collector, observed.pods, claim) != made_for


def _speaker(collectors: tuple[Manifest, ...]) -> Manifest | None:
    up = (pod for pod in collectors if pods.ready(pod))
    return max(up, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), default=None)


def _of_this(answer: Answer, claim: str, sub_path: str) -> Answer:
    report = answer.report
    if report is None or (report.claim, report.sub_path) == (claim, sub_path):
        return answer
    return Answer(None, f"it looks after claim {report.claim}{report.sub_path and f' ({report.sub_path})'}")


async def _deployment(cluster: Cluster, namespace: str, name: str) -> Manifest | None:
    try:
        return await cluster.get(kinds.DEPLOYMENT, namespace, name)
    except NotFound:
        return None
