"""The proxy's Deployment. Pure. Its flags are those of `epd.proxy.main`."""

from __future__ import annotations

from typing import Any, Final

from epd.api import names
from epd.api.quantity import duration_seconds
from epd.api.types import EncoderCacheSpec, EPDDeployment, Spec
from epd.manifests import pod
from epd.manifests.connector_configmap import is_managed
from epd.manifests.context import Context, Manifest
from epd.manifests.labels import ANNOTATION_DEFAULT_CONTAINER, component_selector, labels, metadata
from epd.manifests.merge import merge_pod_template
from epd.manifests.service import PORT_NAME
from epd.topology.roles import roles_of

DATA_PORT: Final = 8000
ADMIN_PORT: Final = 9090
_ADMIN_PORT_NAME: Final = "admin"
_USER: Final = 65532
"""`nonroot` of distroless images; numeric, because the kubelet can't tell a name's uid from 0."""


def proxy_args(epd: EPDDeployment) -> list[str]:
    """Return the flags of `epd-proxy`.

    It waits out the delay of its Service by itself, instead of a preStop: meanwhile it can tell clients to close their
    connections.
    """
    spec, proxy = epd.spec, epd.spec.proxy
    cache = spec.encoder_cache or EncoderCacheSpec()
    flags = {
        "--namespace": epd.metadata.namespace,
        "--epd": epd.metadata.name,
        "--roles": ",".join(role for role, _ in roles_of(spec)),
        "--port": str(DATA_PORT),
        "--admin-port": str(ADMIN_PORT),
        "--encoder-failure-policy": str(proxy.encoder_failure_policy),
        "--request-timeout": proxy.timeouts.request,
        "--encode-timeout": proxy.timeouts.encode,
        "--idle-timeout": proxy.timeouts.idle,
        "--max-in-flight": str(proxy.limits.max_in_flight),
        "--max-fallback-encodes": str(proxy.limits.max_fallback_encodes),
        "--hash-algorithm": str(cache.hash_algorithm),
        "--max-body-size": str(proxy.media.max_body_size),
        "--drain-delay": f"{pod.PRESTOP_SECONDS}s",
        "--drain-timeout": proxy.timeouts.request,
    }
    if proxy.media.allowed_domains:
        flags["--allowed-media-domains"] = ",".join(proxy.media.allowed_domains)
    switches = {"--suspended": spec.suspend, "--rewrite": _may_leave_media_out(spec)}
    return [f"{flag}={value}" for flag, value in flags.items()] + [flag for flag, given in switches.items() if given]


def _may_leave_media_out(spec: Spec) -> bool:
    """Only the Managed connector survives an entry that is gone; without encoders nothing stands in for media."""
    return spec.encode is not None and is_managed(spec)


def _security_context(spec: Spec) -> dict[str, Any]:
    """No uid of ours where the user leaves uids to the platform (OpenShift refuses any other than its own)."""
    plain: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return plain | {"runAsUser": _USER, "runAsGroup": _USER} if "runAsUser" in spec.security_context else plain


def _container(epd: EPDDeployment, context: Context) -> dict[str, Any]:
    pull_policy = context.operator_image_pull_policy
    probe = {"periodSeconds": 5, "timeoutSeconds": 5}
    return {
        "name": names.PROXY_CONTAINER,
        "image": context.operator_image,
        **({"imagePullPolicy": pull_policy} if pull_policy else {}),
        "command": ["epd-proxy"],
        "args": proxy_args(epd),
        "ports": [
            {"name": PORT_NAME, "containerPort": DATA_PORT, "protocol": "TCP"},
            {"name": _ADMIN_PORT_NAME, "containerPort": ADMIN_PORT, "protocol": "TCP"},
        ],
        **pod.resources(epd.spec.proxy.resources),
        # Loading the Kubernetes client takes seconds, on a busy node many; until then liveness would count failures.
        "startupProbe": {"httpGet": {"path": "/healthz", "port": _ADMIN_PORT_NAME}, "periodSeconds": 1}
        | {"failureThreshold": 120, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": _ADMIN_PORT_NAME}} | probe,
        # A minute: a proxy that serves thousands of streams is restarted only when it truly hangs.
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": _ADMIN_PORT_NAME}} | probe | {"failureThreshold": 12},
        "securityContext": pod.RESTRICTED_CONTAINER | {"readOnlyRootFilesystem": True},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _pod_template(epd: EPDDeployment, context: Context) -> dict[str, Any]:
    spec, own_labels = epd.spec, labels(epd, names.COMPONENT_PROXY)
    selector = component_selector(epd, names.COMPONENT_PROXY)
    rendered = {
        "metadata": {"annotations": {ANNOTATION_DEFAULT_CONTAINER: names.PROXY_CONTAINER}, "labels": own_labels},
        "spec": {
            "serviceAccountName": names.proxy(epd.metadata.name),
            "automountServiceAccountToken": True,
            "enableServiceLinks": False,
            **pod.pull_secrets(spec),
            "securityContext": _security_context(spec),
            "terminationGracePeriodSeconds": pod.graceful_stop(duration_seconds(spec.proxy.timeouts.request))[1],
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": selector},
                }
            ],
            "containers": [_container(epd, context)],
        },
    }
    merged = merge_pod_template(rendered, spec.proxy.pod_template)
    merged["metadata"]["labels"] |= own_labels
    return merged


def proxy_deployment(epd: EPDDeployment, context: Context) -> Manifest:
    """Return the Deployment of the proxy; it stays while suspended, to say so."""
    own_labels = labels(epd, names.COMPONENT_PROXY)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(epd, names.proxy(epd.metadata.name), own_labels),
        "spec": {
            "replicas": epd.spec.proxy.replicas,
            "selector": {"matchLabels": component_selector(epd, names.COMPONENT_PROXY)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "minReadySeconds": pod.MIN_READY_SECONDS,
            "revisionHistoryLimit": 3,
            "template": _pod_template(epd, context),
        },
    }
