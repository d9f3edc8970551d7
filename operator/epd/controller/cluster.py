"""The API server, as the reconciler sees it: a protocol of few calls, and its implementation on `kubernetes.aio`.

The only module that imports kubernetes. Maps each failure to `errors`; retries nothing (the queue does).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

from epd.api import names
from epd.controller import metrics
from epd.controller.errors import ClusterError, Retryable, error_of
from epd.controller.kinds import Kind, Manifest, kind_of, name_of

REQUEST_TIMEOUT_SECONDS: Final = 30.0
"""Half of the API server's own limit for a request (--request-timeout, 60 s): a hung connection is noticed first."""

_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"


OnRead = Callable[[Kind, tuple[Manifest, ...]], None]
"""Told of everything that a get or list returned: `health` compares it with what the watches delivered."""


class Cluster(Protocol):
    """What the reconciler asks of an API server. Every method raises `errors.ClusterError`."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        """One object. NotFound if there is none."""

    async def list(self, kind: Kind, namespace: str, *, labels: str = "", fields: str = "") -> tuple[Manifest, ...]:
        """All objects that match, of one namespace or (empty) of all; read from etcd, never from a stale cache."""

    async def apply(self, manifest: Manifest, *, manager: str) -> Manifest:
        """Server-side apply, forced, with strict field validation. Returns the object as it now is.

        A `metadata.uid` in the manifest is a precondition: Conflict if the live object has another one.
        """

    async def delete(self, manifest: Manifest) -> None:
        """Delete this very object (UID precondition), its dependents in the background. Gone already is success."""

    async def patch_status(self, manifest: Manifest, patch: Manifest) -> Manifest:
        """JSON merge patch of `/status` of this very object (UID precondition)."""

    async def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create, or only ask whether it could be. Conflict if the name is taken. For Events: children are applied."""

    async def patch(self, manifest: Manifest, patch: Manifest) -> Manifest:
        """JSON merge patch; UID and resourceVersion in it are preconditions. For Events and our finalizer alone."""


class KubeCluster:
    """`Cluster` over HTTP."""

    def __init__(self, api: kubernetes_client.ApiClient, *, on_read: OnRead) -> None:
        self._api = api
        self._on_read = on_read

    @classmethod
    async def connect(cls, *, on_read: OnRead = lambda _kind, _objects: None) -> KubeCluster:
        """In the cluster with the pod's service account, else as kubectl does (KUBECONFIG, ~/.kube/config)."""
        configuration = kubernetes_client.Configuration()
        if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
            kubernetes_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # not annotated
        else:
            await kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]  # not annotated
                config_file=os.environ.get("KUBECONFIG"),  # its own default is read once, at import
                client_configuration=configuration,
            )
        return cls(kubernetes_client.ApiClient(configuration), on_read=on_read)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()  # type: ignore[no-untyped-call]  # not annotated

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest:  # noqa: D102 (the protocol says it)
        found = await self._call("GET", kind, kind.path(namespace, name))
        self._on_read(kind, (found,))
        return found

    async def list(  # noqa: D102 (the protocol says it)
        self, kind: Kind, namespace: str, *, labels: str = "", fields: str = ""
    ) -> tuple[Manifest, ...]:
        query = {key: value for key, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
        answer = await self._call("GET", kind, kind.path(namespace), query=query)
        # Items of a list have neither apiVersion nor kind.
        found = tuple({"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in answer["items"])
        self._on_read(kind, found)
        return found

    async def apply(self, manifest: Manifest, *, manager: str) -> Manifest:  # noqa: D102 (the protocol says it)
        kind = kind_of(manifest)
        query = {"fieldManager": manager, "force": "true", "fieldValidation": "Strict"}
        path = kind.path(manifest["metadata"]["namespace"], name_of(manifest))
        return await self._call("PATCH", kind, path, query=query, body=manifest, content_type=_APPLY)

    async def delete(self, manifest: Manifest) -> None:  # noqa: D102 (the protocol says it)
        kind, meta = kind_of(manifest), manifest["metadata"]
        body = {"propagationPolicy": "Background", "preconditions": {"uid": meta["uid"]}}
        await self._call("DELETE", kind, kind.path(meta["namespace"], meta["name"]), body=body)

    async def patch_status(self, manifest: Manifest, patch: Manifest) -> Manifest:  # noqa: D102 (the protocol says it)
        kind, meta = kind_of(manifest), manifest["metadata"]
        body = {"metadata": {"uid": meta["uid"]}, "status": patch}
        path = kind.path(meta["namespace"], meta["name"], "status")
        return await self._call("PATCH", kind, path, body=body, content_type=_MERGE)

    async def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:  # noqa: D102 (the protocol says it)
        kind, query = kind_of(manifest), {"fieldManager": names.FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}
        path = kind.path(manifest["metadata"]["namespace"])
        return await self._call("POST", kind, path, query=query, body=manifest)

    async def patch(self, manifest: Manifest, patch: Manifest) -> Manifest:  # noqa: D102 (the protocol says it)
        kind, meta = kind_of(manifest), manifest["metadata"]
        path = kind.path(meta["namespace"], meta["name"])
        query = {"fieldManager": names.FIELD_MANAGER}
        return await self._call("PATCH", kind, path, query=query, body=patch, content_type=_MERGE)

    async def _call(
        self,
        method: str,
        kind: Kind,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        call = f"{method} {kind.plural}"
        url = f"{path}?{urlencode(query)}" if query else path
        headers = {"Accept": "application/json", "Content-Type": content_type}
        try:
            request = await self._api.param_serialize(
                method, url, header_params=headers, body=body, auth_settings=["BearerToken"]
            )
            response = await self._api.call_api(*request, _request_timeout=REQUEST_TIMEOUT_SECONDS)
            raw: bytes = await response.read()  # type: ignore[no-untyped-call]  # not annotated
        except (TimeoutError, aiohttp.ClientError, OSError) as e:
            metrics.REST_CLIENT_REQUESTS.labels(code="<error>", method=method).inc()
            raise Retryable(f"{call}: {type(e).__name__}: {e}") from e
        metrics.REST_CLIENT_REQUESTS.labels(code=str(response.status), method=method).inc()
        if 200 <= response.status <= 299:
            return _object(raw, call)
        raise _error(response.status, raw, call, response.headers)


def _object(raw: bytes, call: str) -> Manifest:
    try:
        answer: Any = json.loads(raw)
    except ValueError as e:
        raise Retryable(f"{call}: the answer is not JSON") from e
    if not isinstance(answer, dict):
        raise Retryable(f"{call}: the answer is not an object")
    return answer


def _error(status: int, raw: bytes, call: str, headers: Mapping[str, str]) -> ClusterError:
    try:
        body: Any = json.loads(raw)
    except ValueError:
        # A proxy in front of the API server, or its own plain-text 429 and 503.
        body = {"message": raw[:200].decode("utf-8", "replace")}
    after = headers.get("Retry-After", "")
    return error_of(
        status=status,
        body=body if isinstance(body, dict) else {},
        call=call,
        retry_after=float(after) if after.isdecimal() else None,
    )
