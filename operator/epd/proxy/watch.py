"""Keeps `Members` in step with the cluster: list, then watch, then list again.

The members last known stay while the API server can't be reached. Never writes to the cluster.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol

from epd.api.names import LABEL_EPD, LABEL_ROLE
from epd.proxy.pods import Members, Pod

log = logging.getLogger(__name__)

WATCH_SECONDS: Final = 120
"""The API server ends a watch after this; the list that follows also mends what a silent connection may have lost."""
READ_SECONDS: Final = WATCH_SECONDS + 15.0
LIST_SECONDS: Final = 30.0
"""A list of a few pods takes milliseconds; this survives a loaded API server."""
FIRST_BACKOFF_SECONDS: Final = 0.2
LAST_BACKOFF_SECONDS: Final = 10.0
"""As client-go's reflector does (800 ms to 30 s), but faster: a proxy with an old list sends requests to dead pods."""


class WatchError(Exception):
    """A list or watch failed, most often with 410 Gone: the list must be read anew."""


class PodSource(Protocol):
    """Where pods come from."""

    async def list_pods(self) -> tuple[list[Pod], str]:
        """Return all pods and the resource version to watch from."""

    def watch_pods(self, resource_version: str) -> AsyncIterator[dict[str, Any]]:
        """Yield watch events (`type`, `object`) until the server ends the watch."""


async def follow(
    source: PodSource,
    members: Members,
    *,
    on_error: Callable[[], None],
    sleep: Callable[[float], Any] = asyncio.sleep,
) -> None:
    """Keep `members` in step with `source` until cancelled; `on_error` is called for each failed list or watch."""
    failures = 0
    blind = False
    while True:
        listed = False
        try:
            pods, version = await source.list_pods()
            members.replace_pods(pods)
            listed = True
            if blind:
                log.warning("pods can be read again")
            blind = False
            async for event in source.watch_pods(version):
                _apply(event, members)
                failures = 0
            failures = 0
        except Exception as error:
            on_error()
            failures += 1
            # an expired watch is everyday life; a list that fails leaves the proxy blind, which is said once
            level = logging.DEBUG if listed or blind else logging.WARNING
            blind = blind or not listed
            log.log(level, "reading pods failed, the %d last known stay: %s", len(members.all()), error)
        # jittered also after a regular end, or all proxies would list at once
        await sleep(backoff_seconds(failures) * random.uniform(0.5, 1))  # noqa: S311 - jitter, not a secret


def _apply(event: dict[str, Any], members: Members) -> None:
    if event["type"] == "ERROR":
        raise WatchError(str(event["object"].get("message", "watch error")))
    if event["type"] != "BOOKMARK":
        members.apply_event(event["type"], event["object"])


def backoff_seconds(failures: int) -> float:
    """The longest wait after `failures` failed attempts in a row."""
    return min(LAST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** min(failures, 10))


class KubernetesPods:
    """Pods of one EPDDeployment, read with `kubernetes.aio` as plain JSON: its models are slow to build and strict."""

    def __init__(self, api: Any, *, namespace: str, epd: str) -> None:
        self._api = api
        self._namespace = namespace
        self._selector = f"{LABEL_EPD}={epd},{LABEL_ROLE}"

    async def list_pods(self) -> tuple[list[Pod], str]:
        """List from etcd's present state, not from a cache that may lie behind what was seen."""
        response = await self._api.list_namespaced_pod_without_preload_content(
            self._namespace, label_selector=self._selector, _request_timeout=LIST_SECONDS
        )
        body = await response.read()
        if response.status != 200:
            raise WatchError(f"list of pods: HTTP {response.status} {body[:200]!r}")
        document = json.loads(body)
        return document["items"], document["metadata"]["resourceVersion"]

    async def watch_pods(self, resource_version: str) -> AsyncIterator[dict[str, Any]]:
        """Watch from `resource_version`."""
        response = await self._api.list_namespaced_pod_without_preload_content(
            self._namespace,
            label_selector=self._selector,
            resource_version=resource_version,
            watch=True,
            timeout_seconds=WATCH_SECONDS,
            _request_timeout=READ_SECONDS,
        )
        try:
            if response.status != 200:
                raise WatchError(f"watch of pods: HTTP {response.status}")
            rest = b""
            # split here: readline() has a limit that a pod with large annotations exceeds
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)
        finally:
            response.close()


async def kubernetes_pods(*, namespace: str, epd: str) -> tuple[KubernetesPods, Callable[[], Any]]:
    """Connect to the cluster: as a pod by its ServiceAccount, else by kubeconfig. Also returns how to disconnect."""
    # imported here: its models take a second and 60 MB, which static mode does without
    from kubernetes.aio import client, config

    configuration = client.Configuration()
    if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=os.environ.get("KUBECONFIG"), client_configuration=configuration
        )
    api_client = client.ApiClient(configuration)
    return KubernetesPods(client.CoreV1Api(api_client), namespace=namespace, epd=epd), api_client.close
