"""The status of an EPDDeployment: from its spec and a snapshot of its children to conditions, roles and one summary.

Pure, and complete: everything in it can be computed anew from the cluster at any time. kstatus (helm --wait, Flux,
Argo CD) must be right about it at every moment: Ready is True only when every part is as this generation asks;
Reconciling and Stalled are True only while something is under way or cannot be mended by waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from epd.api import names
from epd.api.names import ROLE_CONDITIONS, ConditionType, Reason, Role
from epd.api.types import EngineVersionStatus, EPDDeployment, RoleSpec, RoleStatus, Status
from epd.controller import cache, conditions, kinds, pods, storage
from epd.controller.conditions import Finding, Findings
from epd.controller.kinds import Manifest
from epd.controller.observe import Observed
from epd.controller.workload import progress

ROLE_LETTERS: Final = {Role.ENCODE: "E", Role.PREFILL: "P", Role.DECODE: "D", Role.PREFILL_DECODE: "PD"}

_ANSWERING: Final = (Role.PREFILL_DECODE, Role.DECODE)
"""Roles of which a ready pod can answer a request by itself or with what the proxy finds for it."""

UNDER_WAY: Final = frozenset(
    {Reason.PENDING, Reason.STARTING, Reason.ROLLING_OUT, Reason.CHECKING, Reason.WAITING_FOR_FIRST_CONSUMER}
)
"""Reasons that are no trouble: what waits for nothing but time."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What this build derives from a spec, without looking at the cluster. `desired` is None for a scaled role."""

    topology: str
    model_version: str
    engine_version: EngineVersionStatus | None
    url: str
    roles: tuple[tuple[Role, RoleSpec], ...]
    desired: Mapping[Role, int | None]


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """What the reconciler knows beside the snapshot.

    `stalled` and `retrying` are problems of making the children; `left_alone` tells that a paused object's children
    differ from its spec; `outdated` are the roles that this build would render differently.
    """

    stalled: Finding | None = None
    retrying: Finding | None = None
    left_alone: bool = False
    outdated: tuple[Role, ...] = ()


def status_of(
    epd: EPDDeployment, facts: Facts, observed: Observed, circumstances: Circumstances, *, now: str
) -> Status:
    """The whole status. `now` is a metav1.Time; it is used only where a condition changes its status."""
    roles = tuple(_role_status(role, epd, facts, observed) for role, _ in facts.roles)
    findings = findings_of(epd, facts, observed, circumstances)
    return Status(
        observed_generation=epd.metadata.generation,
        url=facts.url,
        topology=facts.topology,
        model_version=facts.model_version,
        engine_version=facts.engine_version,
        roles=list(roles),
        role_summary=" ".join(_summary(role) for role in roles),
        encoder_cache=cache.status(epd, observed.claim, observed.collector.answer.report),
        conditions=conditions.merge(epd.status.conditions, findings, generation=epd.metadata.generation, now=now),
    )


def findings_of(epd: EPDDeployment, facts: Facts, observed: Observed, circumstances: Circumstances) -> Findings:
    """What each condition says."""
    parts = _parts(epd, facts, observed)
    ready = _ready(epd, facts, observed, parts, circumstances)
    return {
        ConditionType.AVAILABLE: _available(epd, facts, observed),
        ConditionType.READY: ready,
        ConditionType.RECONCILING: _reconciling(ready, circumstances),
        ConditionType.STALLED: (
            Finding.true(circumstances.stalled.reason, circumstances.stalled.message)
            if circumstances.stalled
            else Finding.false(Reason.AS_SPECIFIED, "")
        ),
        **parts,
        ConditionType.UPDATE_AVAILABLE: _update(circumstances.outdated),
    }


def _parts(epd: EPDDeployment, facts: Facts, observed: Observed) -> dict[ConditionType, Finding]:
    found = {ConditionType.STORAGE_READY: storage.finding(epd, observed.storage)}
    for role, spec in facts.roles:
        found[ROLE_CONDITIONS[role]] = progress(
            observed.child(kinds.DEPLOYMENT, names.role_deployment(epd.metadata.name, role)),
            observed.pods_of(role),
            observed.pod_events,
            field=field_of(role),
            container=names.ENGINE_CONTAINER,
            patience=f"engines may load for up to {spec.startup_timeout} (spec.{field_of(role)}.startupTimeout)",
            suspended=epd.spec.suspend,
        )
    found[ConditionType.PROXY_READY] = progress(
        observed.child(kinds.DEPLOYMENT, names.proxy(epd.metadata.name)),
        observed.component_pods(names.COMPONENT_PROXY),
        observed.pod_events,
        field="proxy",
        container=names.PROXY_CONTAINER,
        patience="proxies start within seconds",
        suspended=False,
        tunable=False,
    )
    if (health := cache.finding(epd, observed.collector)) is not None:
        found[ConditionType.ENCODER_CACHE_HEALTHY] = health
    return found


def _available(epd: EPDDeployment, facts: Facts, observed: Observed) -> Finding:
    answering = [role for role, _ in facts.roles if role in _ANSWERING]
    up = [pod for role in answering for pod in observed.pods_of(role) if pods.ready(pod)]
    # While the engines' certificate goes, those of before speak TLS, and the proxies of now don't.
    engines = any(epd.spec.engine.tls is not None or not pods.has_port(pod, names.ENGINE_TLS_PORT_NAME) for pod in up)
    # While a certificate comes or goes, proxies of before are ready and speak what the URL no longer says.
    proxies = any(
        pods.ready(pod) and pods.has_port(pod, epd.spec.proxy.scheme)
        for pod in observed.component_pods(names.COMPONENT_PROXY)
    )
    if engines and proxies:
        return Finding.true(Reason.SERVING, f"requests are answered at {facts.url}")
    if epd.spec.suspend:
        return Finding.false(Reason.SUSPENDED, "spec.suspend is true: the proxy answers 503")
    answerers = "/".join(answering) + (" that speaks plain HTTP" if up and not engines else "")
    missing = " and ".join(part for part, there in (("proxy", proxies), (answerers, engines)) if not there)
    return Finding.false(Reason.NOT_SERVING, f"no ready pod of {missing}")


def _ready(
    epd: EPDDeployment,
    facts: Facts,
    observed: Observed,
    parts: Mapping[ConditionType, Finding],
    circumstances: Circumstances,
) -> Finding:
    for problem in (circumstances.stalled, circumstances.retrying):
        if problem is not None:
            return Finding.false(problem.reason, problem.message)
    if circumstances.left_alone:
        return Finding.false(
            Reason.PAUSED, "spec.paused is true: children differ from the spec and are left alone; set it to false"
        )
    # Suspended from the start, no engine pod was ever placed and the claim has not been checked: that is as asked.
    relevant = {
        type_: finding
        for type_, finding in parts.items()
        if not (epd.spec.suspend and type_ == ConditionType.STORAGE_READY and finding.status == "Unknown")
    }
    health = relevant.pop(ConditionType.ENCODER_CACHE_HEALTHY, None)
    broken = [(type_, finding) for type_, finding in relevant.items() if not finding.ok]
    if health is not None and cache.must_be_mended(health):
        broken.insert(0, (ConditionType.ENCODER_CACHE_HEALTHY, health))
    if broken:
        # Trouble first. Of what is only under way the pods, before the claim's check, which waits for them.
        type_, finding = next(((t, f) for t, f in broken if f.reason not in UNDER_WAY), broken[-1])
        return Finding.false(part_reason(type_, finding.reason), f"{_part(type_)}: {finding.message}")
    if epd.spec.suspend:
        return Finding.true(Reason.SUSPENDED, "suspended as asked: no engine runs, claim, Service and proxy stay")
    summary = " ".join(_summary(_role_status(role, epd, facts, observed)) for role, _ in facts.roles)
    return Finding.true(Reason.ALL_READY, f"everything is as specified: {summary}")


def _reconciling(ready: Finding, circumstances: Circumstances) -> Finding:
    if circumstances.stalled is not None:
        return Finding.false(circumstances.stalled.reason, "")
    if ready.ok:
        return Finding.false(Reason.AS_SPECIFIED, "")
    return Finding.true(ready.reason, ready.message)


def _update(outdated: tuple[Role, ...]) -> Finding:
    if not outdated:
        return Finding.false(Reason.UP_TO_DATE, "")
    return Finding.true(
        Reason.UPDATE_AVAILABLE,
        f"this version of the operator renders {', '.join(outdated)} differently; the running engines are left alone. "
        "Change spec.restartedAt to take the new rendering now; any change of the spec takes it too.",
    )


def part_reason(type_: ConditionType, reason: str) -> str:
    """A part's reason as Ready and Events have it, such as `EncodeImagePull`; of storage or under way it stays."""
    if reason in UNDER_WAY or type_ in (ConditionType.STORAGE_READY, ConditionType.ENCODER_CACHE_HEALTHY):
        return reason
    return f"{type_.removesuffix('Ready')}{reason}"


def _part(type_: ConditionType) -> str:
    words = type_.removesuffix("Ready").removesuffix("Healthy")
    return words[0].lower() + words[1:]


def _role_status(role: Role, epd: EPDDeployment, facts: Facts, observed: Observed) -> RoleStatus:
    live = observed.child(kinds.DEPLOYMENT, names.role_deployment(epd.metadata.name, role))
    counted: dict[str, Any] = (live or {}).get("status") or {}
    # Before there is a Deployment: what will be asked for; a scaled role starts with one.
    desired = facts.desired.get(role)
    versions = {_model_version(pod) for pod in observed.pods_of(role) if pods.ready(pod)}
    return RoleStatus(
        name=role,
        desired=int(live["spec"].get("replicas", 1)) if live is not None else 1 if desired is None else desired,
        ready=int(counted.get("readyReplicas") or 0),
        updated=int(counted.get("updatedReplicas") or 0),
        model_versions=sorted(versions - {""}),
    )


def _model_version(pod: Manifest) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.LABEL_MODEL_VERSION, ""))


def _summary(role: RoleStatus) -> str:
    count = str(role.desired) if role.ready == role.desired else f"{role.ready}/{role.desired}"
    return count + ROLE_LETTERS[Role(role.name)]


def field_of(role: Role) -> str:
    """The member of `spec` that describes a role: `prefillDecode` for `prefill-decode`."""
    first, *rest = role.split("-")
    return first + "".join(word.capitalize() for word in rest)
