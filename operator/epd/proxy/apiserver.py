"""Pods of one EPDDeployment, read from the API server with aiohttp.

Not with the Kubernetes client: importing it loads every model of every API, which costs 130 MB and seconds of start for
two kinds of GET. Only a kubeconfig, which no pod has, is read by it. Never writes to the cluster.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from epd.api.names import LABEL_EPD, LABEL_ROLE
from epd.proxy.pods import Pod, what_is_read
from epd.proxy.watch import WatchError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet puts a pod's token and the cluster's CA."""
WATCH_SECONDS: Final = 120
"""The API server ends a watch after this; the list that follows also mends what a silent connection may have lost."""
READ_SECONDS: Final = WATCH_SECONDS + 15.0
LIST_SECONDS: Final = 30.0
"""A page of a list takes milliseconds; this survives a loaded API server."""
PAGE_PODS: Final = 500
"""As client-go's pager asks for. A pod has 4 to 8 KB of JSON: a page is parsed within 20 ms, and requests wait no
longer than that for a list, however long it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How to reach the API server. `authorization` is asked before each request, since tokens are replaced hourly."""

    url: str
    authorization: Callable[[], Awaitable[str | None]]
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    proxy: str | None = None


class KubernetesPods:
    """The pods of the engines, as plain JSON."""

    def __init__(self, connection: Connection, *, namespace: str, epd: str) -> None:
        self._connection = connection
        self._url = f"{connection.url}/api/v1/namespaces/{namespace}/pods"
        self._query = {"labelSelector": f"{LABEL_EPD}={epd},{LABEL_ROLE}"}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=connection.tls or True), cookie_jar=aiohttp.DummyCookieJar()
        )

    async def list_pods(self) -> tuple[list[Pod], str]:
        """List from etcd's present state, not from a cache that may lie behind what was seen.

        Page by page, all of one state, with that of pods alone which `pods.py` reads: the rest is a hundred times as
        much.
        """
        pods: list[Pod] = []
        query = {**self._query, "limit": str(PAGE_PODS)}
        while True:
            async with await self._get(query, aiohttp.ClientTimeout(total=LIST_SECONDS)) as response:
                document = json.loads(await response.read())
            pods += map(what_is_read, document["items"])
            if not (token := document["metadata"].get("continue")):
                return pods, document["metadata"]["resourceVersion"]
            query["continue"] = token

    async def watch_pods(self, resource_version: str) -> AsyncIterator[dict[str, Any]]:
        """Watch from `resource_version`."""
        query = {
            **self._query,
            "watch": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        async with await self._get(query, aiohttp.ClientTimeout(total=READ_SECONDS)) as response:
            rest = b""
            # split here: readline() has a limit that a pod with large annotations exceeds
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield json.loads(line)

    async def _get(self, query: Mapping[str, str], patience: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        authorization = await self._connection.authorization()
        response = await self._session.get(
            self._url,
            params=query,
            headers={"authorization": authorization} if authorization else {},
            timeout=patience,
            proxy=self._connection.proxy,
            server_hostname=self._connection.server_name,
        )
        if response.status != 200:
            body = await response.read()
            raise WatchError(f"pods can't be read: HTTP {response.status} {body[:200]!r}")
        return response

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()


async def connection() -> Connection:
    """As a pod by its ServiceAccount, else by kubeconfig."""
    if "KUBERNETES_SERVICE_HOST" in os.environ and "KUBECONFIG" not in os.environ:
        return in_cluster(os.environ, SERVICE_ACCOUNT)
    return await by_kubeconfig(os.environ.get("KUBECONFIG"))


def in_cluster(environment: Mapping[str, str], account: Path) -> Connection:
    """Connect as the pod that this process runs in. Raises KeyError or OSError where it runs in none."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
    token = account / "token"

    async def authorization() -> str:
        # a read of memory (tmpfs), every two minutes
        return f"Bearer {token.read_text().strip()}"

    return Connection(
        url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        authorization=authorization,
        tls=_context(cafile=str(account / "ca.crt")),
    )


async def by_kubeconfig(path: str | None) -> Connection:
    """Connect by the current context of a kubeconfig; `path` None stands for its usual place."""
    # imported here, since pods do without it
    from kubernetes.aio import config
    from kubernetes.aio.client import Configuration

    read = Configuration()
    await config.load_kube_config(config_file=path, client_configuration=read)  # type: ignore[no-untyped-call]
    tls = _context(cafile=read.ssl_ca_cert, cadata=read.ca_cert_data)
    if not read.verify_ssl:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if read.cert_file:
        tls.load_cert_chain(read.cert_file, read.key_file)

    async def authorization() -> str | None:
        # renews a token that has expired
        return await read.get_api_key_with_prefix("BearerToken")

    return Connection(
        url=read.host.rstrip("/"),
        authorization=authorization,
        tls=tls,
        server_name=read.tls_server_name,
        proxy=read.proxy,
    )


def _context(*, cafile: str | None, cadata: str | bytes | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=cafile, cadata=cadata)
    # on by default since Python 3.13, but the CAs of many clusters lack what it asks for, as client-go does not ask
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
