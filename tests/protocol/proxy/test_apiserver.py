"""How a pod reaches the API server: TLS by the cluster's CA, a token that is replaced."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import yaml

from epd.proxy import apiserver
from epd.proxy.apiserver import Connection, KubernetesPods, by_kubeconfig, in_cluster
from epd.proxy.watch import WatchError
from protocol.proxy.apiservers import ApiServer, pod

TLS = Path(__file__).parent / "tls"
"""A certificate for 127.0.0.1, signed by itself and valid for a hundred years."""


@dataclass
class Cluster:
    server: ApiServer
    url: str
    account: Path

    def connection(self) -> Connection:
        host, port = self.url.removeprefix("https://").split(":")
        return in_cluster({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}, self.account)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(TLS / "ca.crt", TLS / "key.pem")
    (tmp_path / "ca.crt").write_bytes((TLS / "ca.crt").read_bytes())
    (tmp_path / "token").write_text("first\n")
    server = ApiServer({"a": pod("a")})
    async with server.serve(tls) as url:
        yield Cluster(server, url, tmp_path)


async def test_a_pod_uses_its_service_account_and_each_request_its_present_token(cluster: Cluster) -> None:
    async with KubernetesPods(cluster.connection(), namespace="ns", epd="demo") as pods:
        assert await pods.list_pods() == ([pod("a")], "7")
        (cluster.account / "token").write_text("second")
        cluster.server.events.put_nowait({"type": "ADDED", "object": pod("b")})
        cluster.server.events.put_nowait(None)
        assert [event async for event in pods.watch_pods("7")] == [{"type": "ADDED", "object": pod("b")}]
    assert cluster.server.authorizations == ["Bearer first", "Bearer second"]


async def test_a_long_list_comes_in_pages_of_what_is_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apiserver, "PAGE_PODS", 2)
    names = ["a", "b", "c", "d", "e"]
    cluster.server.pods = {name: pod(name) for name in names}
    cluster.server.pods["c"]["metadata"]["managedFields"] = [{"manager": "kubelet"}]
    async with KubernetesPods(cluster.connection(), namespace="ns", epd="demo") as pods:
        assert await pods.list_pods() == ([pod(name) for name in names], "7")
    pages = [(query["limit"], query.get("continue")) for query in cluster.server.queries]
    assert pages == [("2", None), ("2", "2"), ("2", "4")]


async def test_a_server_that_the_clusters_ca_did_not_sign_gets_no_token(cluster: Cluster) -> None:
    connection = Connection(
        url=cluster.url, authorization=cluster.connection().authorization, tls=ssl.create_default_context()
    )
    async with KubernetesPods(connection, namespace="ns", epd="demo") as pods:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await pods.list_pods()
    assert cluster.server.authorizations == []


async def test_a_refusal_is_an_error_that_says_why(cluster: Cluster) -> None:
    cluster.server.failing = 403
    async with KubernetesPods(cluster.connection(), namespace="ns", epd="demo") as pods:
        with pytest.raises(WatchError, match=r"HTTP 403 .*etcd is away"):
            await pods.list_pods()
        with pytest.raises(WatchError, match="HTTP 403"):
            await anext(aiter(pods.watch_pods("7")))


async def test_a_kubeconfig_has_a_ca_and_may_do_without_a_token(cluster: Cluster, tmp_path: Path) -> None:
    config = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [
            {"name": "test", "cluster": {"server": cluster.url, "certificate-authority": str(TLS / "ca.crt")}}
        ],
        "users": [{"name": "test", "user": {}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    async with KubernetesPods(await by_kubeconfig(str(tmp_path / "kubeconfig")), namespace="ns", epd="demo") as pods:
        assert await pods.list_pods() == ([pod("a")], "7")
    assert cluster.server.authorizations == [None]


def test_ipv6() -> None:
    connection = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, TLS)
    assert connection.url == "https://[fd00::1]:443"


def test_a_pod_does_without_the_kubernetes_client() -> None:
    """It would quadruple the memory of every proxy pod."""
    program = f"""
import pathlib, sys, epd.proxy.main, epd.proxy.apiserver
environment = {{"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}}
epd.proxy.apiserver.in_cluster(environment, pathlib.Path({str(TLS)!r}))
sys.exit("kubernetes" in sys.modules)
"""
    operator = Path(__file__).parents[3] / "operator"
    ended = subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": str(operator)}, check=False)
    assert ended.returncode == 0
