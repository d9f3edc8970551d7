"""The proxy's Deployment. Pure."""

from __future__ import annotations

from typing import Any, Final

from epd.api import names
from epd.api.quantity import duration_seconds
from epd.api.types import EPDDeployment, Spec
from epd.manifests import pod
from epd.manifests.context import Context, Manifest
from epd.manifests.labels import ANNOTATION_DEFAULT_CONTAINER, component_selector, labels, metadata
from epd.manifests.merge import merge_pod_template
from epd.manifests.proxy_flags import ADMIN_PORT, DATA_PORT, proxy_flags
from epd.manifests.service import port_name
from epd.topology.inputs import proxy_inputs

_ADMIN_PORT_NAME: Final = "admin"
_USER: Final = 65532
"""`nonroot` of distroless images; numeric, because the kubelet can't tell a name's uid from 0."""


def _security_context(spec: Spec) -> dict[str, Any]:
    """No uid of ours where the user leaves uids to the platform (OpenShift refuses any other than its own)."""
    plain: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    return plain | {"runAsUser": _USER, "runAsGroup": _USER} if "runAsUser" in spec.security_context else plain


def _secrets(spec: Spec) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes and mounts. As directories: the kubelet renews these when a Secret changes, and files of a subPath never.

    Of certificates the keys are named, so that the kubelet says which one a Secret lacks; of tenants any may be one.
    """
    tls, keys, engines = spec.proxy.tls, spec.proxy.auth.api_keys, spec.engine.tls
    volumes, mounts = [], []
    if tls is not None:
        pair = (names.TLS_CERTIFICATE, names.TLS_KEY)
        volumes.append(pod.secret_volume(names.PROXY_TLS_VOLUME, tls.secret_name, keys=pair))
        mounts.append(pod.mount(names.PROXY_TLS_VOLUME, names.PROXY_TLS_PATH, read_only=True))
    if keys is not None:
        volumes.append(pod.secret_volume(names.PROXY_API_KEYS_VOLUME, keys.secret_name))
        mounts.append(pod.mount(names.PROXY_API_KEYS_VOLUME, names.PROXY_API_KEYS_PATH, read_only=True))
    if engines is not None:  # the engines' key is not for the proxy
        volumes.append(pod.secret_volume(names.PROXY_ENGINE_CA_VOLUME, engines.secret_name, keys=(names.TLS_CA,)))
        mounts.append(pod.mount(names.PROXY_ENGINE_CA_VOLUME, names.PROXY_ENGINE_CA_PATH, read_only=True))
    return volumes, mounts


def _container(epd: EPDDeployment, context: Context) -> dict[str, Any]:
    pull_policy = context.operator_image_pull_policy
    probe = {"periodSeconds": 5, "timeoutSeconds": 5}
    return {
        "name": names.PROXY_CONTAINER,
        "image": context.operator_image,
        **({"imagePullPolicy": pull_policy} if pull_policy else {}),
        "command": ["epd-proxy"],
        "args": proxy_flags(epd),
        "ports": [
            {"name": port_name(epd), "containerPort": DATA_PORT, "protocol": "TCP"},
            {"name": _ADMIN_PORT_NAME, "containerPort": ADMIN_PORT, "protocol": "TCP"},
        ],
        **pod.resources(epd.spec.proxy.resources),
        **({"volumeMounts": mounts} if (mounts := _secrets(epd.spec)[1]) else {}),
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
            **({"volumes": volumes} if (volumes := _secrets(spec)[0]) else {}),
        },
    }
    merged = merge_pod_template(rendered, spec.proxy.pod_template)
    merged["metadata"]["labels"] |= own_labels
    return merged


def proxy_deployment(epd: EPDDeployment, context: Context) -> Manifest:
    """Return the Deployment of the proxy, which stays while suspended, to say so; without `replicas` when a scaler sets
    them."""
    own_labels, replicas = labels(epd, names.COMPONENT_PROXY), epd.spec.proxy.desired_replicas
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(epd, names.proxy(epd.metadata.name), own_labels)
        | {"annotations": {names.ANNOTATION_INPUTS: proxy_inputs(epd)}},
        "spec": {
            **({} if replicas is None else {"replicas": replicas}),
            "selector": {"matchLabels": component_selector(epd, names.COMPONENT_PROXY)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "minReadySeconds": pod.MIN_READY_SECONDS,
            "revisionHistoryLimit": 3,
            "template": _pod_template(epd, context),
        },
    }
