"""The endpoint over TLS, with API keys and tenants apart, in front of the demo's engines.

What is rotated is in force without a restart.
"""

from __future__ import annotations

import json
import secrets
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from cluster.chat import Answer, body, picture, post
from cluster.deployed import Deployed, sample
from cluster.steps import run

pytestmark = pytest.mark.node

ROTATION_SECONDS = 90
"""The kubelet looks at a pod once a minute at least, sooner where the pod is changed; the proxy looks every 10 s."""
OPEN = {"tls": None, "auth": {"apiKeys": None, "tenantIsolation": None}, "limits": {"maxPerTenant": None}}
SECURED = {
    "tls": {"secretName": "web"},
    "auth": {"apiKeys": {"secretName": "tenants"}, "tenantIsolation": "Salted"},
    "limits": {"maxPerTenant": 1},
}


def certificate(folder: Path, epd: Deployed) -> None:
    """Write a certificate that signs itself, and its key, for the names that clients in and out of the cluster use."""
    names = f"DNS:{epd.name}.{epd.namespace}.svc,IP:{httpx.URL(epd.url()).host}"
    new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=epd-test"]
    run([*new, "-addext", f"subjectAltName={names}", "-keyout", folder / "tls.key", "-out", folder / "tls.crt"])


def secret(name: str, data: dict[str, str], *, kind: str = "Opaque") -> dict[str, Any]:
    """A Secret."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "stringData": data}


def proxies(epd: Deployed) -> list[dict[str, Any]]:
    """The proxy's pods, those that end too."""
    selector = f"epd.dev/name={epd.name},app.kubernetes.io/component=proxy"
    return list(json.loads(epd.run("get", "pods", "-l", selector, "-o", "json"))["items"])


def set_proxy(epd: Deployed, proxy: dict[str, Any]) -> None:
    """Change `spec.proxy`, and wait until the proxies of before are gone."""
    before = [pod["metadata"]["name"] for pod in proxies(epd)]
    epd.patch({"proxy": proxy})
    epd.run("wait", "--for=delete", *(f"pod/{name}" for name in before), "--timeout=120s")
    epd.wait_ready(seconds=60)


def until(true: Callable[[], bool], what: str, *, seconds: float) -> None:
    """Wait for what the kubelet and the proxy are about to do."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(1)


def ask(url: str, pictures: Sequence[str], *, client: httpx.Client, stream: bool = False) -> Answer:
    """Ask for the colours of `pictures` by this client."""
    return post(url, body(pictures, stream=stream), stream=client.stream)


@dataclass
class Endpoint:
    """The deployment with its certificate and its tenants' keys."""

    epd: Deployed
    url: str
    folder: Path
    keys: dict[str, str]

    def client(self, key: str = "") -> httpx.Client:
        """A client that trusts the certificate and nothing else, with a key or without."""
        trusted = ssl.create_default_context(cafile=str(self.folder / "tls.crt"))
        return httpx.Client(verify=trusted, timeout=60, headers={"authorization": f"Bearer {key}"} if key else {})

    def write(self) -> None:
        """Write both Secrets as they should be."""
        chain, key = (self.folder / "tls.crt").read_text(), (self.folder / "tls.key").read_text()
        tls = secret("web", {"tls.crt": chain, "tls.key": key}, kind="kubernetes.io/tls")
        self.epd.run("apply", "-f", "-", stdin=yaml.safe_dump_all([tls, secret("tenants", self.keys)]))

    def encoded(self) -> float:
        """Requests that the encoders themselves counted."""
        metrics = httpx.get(f"{self.epd.engine('encode')}/metrics", timeout=10).text
        return sample(metrics, "vllm:request_success_total")


@pytest.fixture(scope="module")
def endpoint(epd: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """The demo's engines behind a proxy with all of it; plain again at the end."""
    folder = tmp_path_factory.mktemp("endpoint")
    certificate(folder, epd)
    keys = {tenant: secrets.token_hex(32) for tenant in ("search", "support")}
    found = Endpoint(epd, "", folder, keys)
    found.write()
    try:
        set_proxy(epd, SECURED)
        found.url = epd.url()
        yield found
    finally:
        set_proxy(epd, OPEN)
        epd.run("delete", "secret", "web", "tenants")


def test_a_picture_is_answered_over_https_to_who_has_a_key(endpoint: Endpoint) -> None:
    epd = endpoint.epd
    assert epd.get()["status"]["url"] == f"https://{epd.name}.{epd.namespace}.svc"
    assert endpoint.url.startswith("https://")
    assert httpx.URL(endpoint.url).port in (None, 443)
    assert epd.condition("Available")["status"] == "True"
    with endpoint.client(endpoint.keys["search"]) as client:
        answer = ask(endpoint.url, [picture("green")], client=client)
        streamed = ask(endpoint.url, [picture("red"), picture("blue")], stream=True, client=client)
    assert (answer.status, answer.text, answer.headers["x-epd-encode"]) == (200, "green", "encoded")
    assert (streamed.status, streamed.text) == (200, "red and blue")


@pytest.mark.parametrize("key", ["", "0" * 64], ids=["none", "wrong"])
def test_who_has_no_key_is_refused(endpoint: Endpoint, key: str) -> None:
    before = endpoint.encoded()
    with endpoint.client(key) as client:
        answer = ask(endpoint.url, [picture("green")], client=client)
    assert (answer.status, json.loads(answer.text)["error"]["code"]) == (401, "invalid_api_key")
    assert endpoint.encoded() == before


def test_tenants_share_nothing_and_one_encodes_once(endpoint: Endpoint) -> None:
    url, counts, answers = picture("purple"), [endpoint.encoded()], []
    for tenant in ("search", "search", "support"):
        with endpoint.client(endpoint.keys[tenant]) as client:
            answers.append(ask(endpoint.url, [url], client=client))
        counts.append(endpoint.encoded())
    assert [(answer.status, answer.text) for answer in answers] == [(200, "purple")] * 3
    assert [after - before for before, after in pairwise(counts)] == [1, 0, 1]
    first, again, other = (answer.items for answer in answers)
    assert first == again != other


def test_a_tenant_beyond_its_share_is_refused_alone(endpoint: Endpoint) -> None:
    long = body([], stream=True, max_tokens=1000, min_tokens=1000, ignore_eos=True)
    with endpoint.client(endpoint.keys["search"]) as busy, endpoint.client(endpoint.keys["support"]) as other:
        with busy.stream("POST", f"{endpoint.url}/v1/chat/completions", json=long) as response:
            answer = response.iter_raw()  # held: an iterator that goes closes the connection
            assert (response.status_code, next(answer)[:5]) == (200, b"data:")
            refused = ask(endpoint.url, [], client=busy)
            served = ask(endpoint.url, [], client=other)
        assert (refused.status, json.loads(refused.text)["error"]["code"]) == (429, "tenant_overloaded")
        assert int(refused.headers["retry-after"]) > 0
        assert served.status == 200
        # the one that was broken off counts no more
        until(lambda: ask(endpoint.url, [], client=busy).status == 200, "the tenant has room again", seconds=20)


def test_rotated_secrets_are_in_force_without_a_restart(endpoint: Endpoint) -> None:
    (before,) = proxies(endpoint.epd)
    old = endpoint.keys["search"]
    endpoint.keys["search"] = secrets.token_hex(32)
    certificate(endpoint.folder, endpoint.epd)
    endpoint.write()
    chain = (endpoint.folder / "tls.crt").read_text()
    # or the kubelet looks at the pod within a minute by itself
    endpoint.epd.run("annotate", "pod", before["metadata"]["name"], f"test/rotated={secrets.token_hex(4)}")
    host = (httpx.URL(endpoint.url).host, httpx.URL(endpoint.url).port or 443)

    def shows_it() -> bool:
        return ssl.get_server_certificate(host).strip() == chain.strip()

    until(shows_it, "the new certificate is shown", seconds=ROTATION_SECONDS)

    def takes_the_key() -> bool:
        with endpoint.client(endpoint.keys["search"]) as client:
            return ask(endpoint.url, [], client=client).status == 200

    until(takes_the_key, "the new key is taken", seconds=ROTATION_SECONDS)
    with endpoint.client(old) as client:
        assert ask(endpoint.url, [], client=client).status == 401
    (after,) = proxies(endpoint.epd)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert [c["restartCount"] for c in after["status"]["containerStatuses"]] == [0]
