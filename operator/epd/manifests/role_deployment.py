"""The Deployment of one role: engines that load for minutes, drain for minutes and write as one user. Pure."""

from __future__ import annotations

from typing import Any, Final

from epd.api import names
from epd.api.names import Role
from epd.api.types import EPDDeployment, RoleSpec, Spec
from epd.manifests import pod
from epd.manifests.connector_configmap import connector_volume
from epd.manifests.context import Context, Manifest
from epd.manifests.labels import (
    ANNOTATION_DEFAULT_CONTAINER,
    ANNOTATION_RESTARTED_AT,
    metadata,
    role_labels,
    role_selector,
)
from epd.manifests.merge import merge_pod_template
from epd.topology.environment import engine_env
from epd.topology.flags import COMMAND, engine_args
from epd.topology.inputs import role_inputs
from epd.topology.roles import desired_replicas, drain_seconds, role_spec_of, rollout_of, startup_seconds
from epd.topology.storage import HF_CACHE_PATH, HOME_PATH, hf_cache_claim, model_claim, single_node

_STARTUP_PERIOD_SECONDS: Final = 5
"""An engine takes work at most this long after it could; `/health` costs it nothing."""
_READINESS_FAILURES: Final = 3
_LIVENESS_FAILURES: Final = 12
"""At 10 s each, two minutes: decoding a long video can hold the API server's process, and a restart costs minutes.
An engine whose core died says 503 and exits by itself within 5 s, so this only catches one that hangs."""
_PROBE_TIMEOUT_SECONDS: Final = 5

_START_MARGIN_SECONDS: Final = 600
"""Scheduling and pulling an image of 10 to 20 GB, before the engine starts; a Deployment's default deadline."""

_SHARED_MEMORY: Final = "8Gi"
"""A limit, not a reservation: vLLM's processor cache in shared memory takes 4 GiB by default, the Managed connector's
copies 1 GiB, vLLM's message rings and NCCL some hundred MiB per tensor-parallel rank; half as much again. The container
runtime's 64 MiB would kill the engine."""

_IDS: Final = frozenset({"runAsUser", "runAsGroup", "fsGroup"})

_REVISION_HISTORY: Final = 3
"""Old ReplicaSets are for reading only: the spec is what is rolled back."""


def _volumes(epd: EPDDeployment, context: Context) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes and mounts. Their names (`shm`, `tmp`, `home`, ...) are an API: podTemplates patch them."""
    volumes: list[dict[str, Any]] = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _SHARED_MEMORY}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "home", "emptyDir": {}},
    ]
    mounts = [pod.mount("shm", "/dev/shm"), pod.mount("tmp", "/tmp"), pod.mount("home", HOME_PATH)]  # noqa: S108
    if weights := model_claim(epd.spec):
        volumes.append(pod.claim_volume(names.MODEL_VOLUME, weights.claim_name))
        mounts.append(pod.mount(names.MODEL_VOLUME, names.MODEL_PATH, sub_path=weights.sub_path, read_only=True))
    elif downloads := hf_cache_claim(epd.spec):
        volumes.append(pod.claim_volume("hf-cache", downloads.claim_name))
        mounts.append(pod.mount("hf-cache", HF_CACHE_PATH, sub_path=downloads.sub_path))
    else:
        volumes.append({"name": "hf-cache", "emptyDir": {}})
        mounts.append(pod.mount("hf-cache", HF_CACHE_PATH))
    cache_volumes, cache_mounts = pod.encoder_cache(epd)
    code_volumes, code_mounts = connector_volume(epd, context)
    tls_volumes, tls_mounts = _tls_volume(epd.spec)
    return volumes + cache_volumes + code_volumes + tls_volumes, mounts + cache_mounts + code_mounts + tls_mounts


def _tls_volume(spec: Spec) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The certificate and its key alone, each by name, so that the kubelet says which one a Secret lacks."""
    if spec.engine.tls is None:
        return [], []
    volume = pod.secret_volume(
        names.ENGINE_TLS_VOLUME, spec.engine.tls.secret_name, keys=(names.TLS_CERTIFICATE, names.TLS_KEY)
    )
    return [volume], [pod.mount(names.ENGINE_TLS_VOLUME, names.ENGINE_TLS_PATH, read_only=True)]


def _port_name(spec: Spec) -> str:
    return names.ENGINE_TLS_PORT_NAME if spec.engine.tls else names.ENGINE_PORT_NAME


def _probes(spec: Spec, startup: int) -> dict[str, Any]:
    """The kubelet checks no certificate."""
    scheme = {"scheme": "HTTPS"} if spec.engine.tls else {}
    place = {"path": "/health", "port": _port_name(spec), **scheme}
    request = {"httpGet": place, "timeoutSeconds": _PROBE_TIMEOUT_SECONDS}
    attempts = -(-startup // _STARTUP_PERIOD_SECONDS)
    return {
        "startupProbe": request | {"periodSeconds": _STARTUP_PERIOD_SECONDS, "failureThreshold": max(attempts, 1)},
        "readinessProbe": request | {"periodSeconds": 5, "failureThreshold": _READINESS_FAILURES},
        "livenessProbe": request | {"periodSeconds": 10, "failureThreshold": _LIVENESS_FAILURES},
    }


def _container(epd: EPDDeployment, role: Role, role_spec: RoleSpec, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    engine, drain = epd.spec.engine, drain_seconds(epd.spec, role)
    pull_policy = {"imagePullPolicy": str(engine.image_pull_policy)} if engine.image_pull_policy else {}
    return {
        "name": names.ENGINE_CONTAINER,
        "image": engine.image,
        **pull_policy,
        "command": list(COMMAND),
        "args": engine_args(epd, role),
        "env": engine_env(epd.spec, role),
        "ports": [{"name": _port_name(epd.spec), "containerPort": role_spec.port, "protocol": "TCP"}],
        **pod.resources(role_spec.resources),
        **_probes(epd.spec, startup_seconds(epd.spec, role)),
        "lifecycle": pod.graceful_stop(drain)[0],
        "securityContext": pod.RESTRICTED_CONTAINER,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }


def _annotations(spec: Spec) -> dict[str, str]:
    plain = {ANNOTATION_DEFAULT_CONTAINER: names.ENGINE_CONTAINER}
    return plain | {ANNOTATION_RESTARTED_AT: spec.restarted_at} if spec.restarted_at else plain


def pod_template(epd: EPDDeployment, role: Role, context: Context) -> dict[str, Any]:
    """Return the pod template of a role: ours, then `spec.engine.podTemplate`, then the role's.

    Set again afterwards: our labels, since the selector and the proxy go by them, and the ids of spec.securityContext,
    since all roles and the preflight share files. The root file system stays writable: libraries under vLLM write
    compiled kernels beside their modules.
    """
    spec, role_spec = epd.spec, role_spec_of(epd.spec, role)
    volumes, mounts = _volumes(epd, context)
    rendered = {
        "metadata": {"annotations": _annotations(spec), "labels": role_labels(epd, role)},
        "spec": {
            "serviceAccountName": names.engine_service_account(epd.metadata.name),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,  # a Service named `vllm` would set VLLM_PORT, which vLLM reads
            **pod.pull_secrets(spec),
            "securityContext": pod.engine_security_context(spec),
            "terminationGracePeriodSeconds": pod.graceful_stop(drain_seconds(spec, role))[1],
            "containers": [_container(epd, role, role_spec, mounts)],
            "volumes": volumes,
        },
    }
    merged = merge_pod_template(rendered, spec.engine.pod_template, role_spec.pod_template)
    merged["metadata"]["labels"] |= role_labels(epd, role)
    ids = {key: value for key, value in spec.security_context.items() if key in _IDS}
    merged["spec"]["securityContext"] = (merged["spec"].get("securityContext") or {}) | ids
    if single_node(spec):
        merged["spec"] = pod.with_pod_affinity(merged["spec"], [pod.same_node(epd)])
    return merged


def role_deployment(epd: EPDDeployment, role: Role, context: Context) -> Manifest:
    """Return the Deployment of a role; without `replicas` when a scaler sets them.

    Its progress deadline spans one pod's whole change: the old one drains (with `maxSurge: 0` its device is needed),
    the new one is scheduled, pulled and loads.
    """
    spec = epd.spec
    replicas, rollout = desired_replicas(spec, role), rollout_of(spec, role)
    grace = pod.graceful_stop(drain_seconds(spec, role))[1]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(epd, names.role_deployment(epd.metadata.name, role), role_labels(epd, role))
        | {"annotations": {names.ANNOTATION_INPUTS: role_inputs(epd, role)}},
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "selector": {"matchLabels": role_selector(epd, role)},
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": rollout.max_surge, "maxUnavailable": rollout.max_unavailable},
            },
            "minReadySeconds": pod.MIN_READY_SECONDS,
            "progressDeadlineSeconds": grace + _START_MARGIN_SECONDS + startup_seconds(spec, role),
            "revisionHistoryLimit": _REVISION_HISTORY,
            "template": pod_template(epd, role, context),
        },
    }
