"""TLS between proxy and engines, as `spec.engine.tls` asks for it, with real vLLM and certificates that are renewed."""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import yaml

from cluster.chat import ask, picture
from cluster.clients import load, wrong
from cluster.deployed import Deployed
from cluster.steps import run

pytestmark = pytest.mark.node

ROTATION_SECONDS = 90
"""The kubelet looks at a pod once a minute at least, sooner where the pod is changed; vLLM looks all the time."""
ROLES = ("encode", "prefill-decode")


@dataclass
class Engines:
    """The demo with certificates of a CA that nobody else knows."""

    epd: Deployed
    folder: Path

    @property
    def server(self) -> str:
        """The name that certificates are for."""
        return f"{self.epd.name}-engine.{self.epd.namespace}.svc"

    def found(self) -> None:
        """Make the CA."""
        new = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=epd-test"]
        run([*new, "-keyout", self.folder / "ca.key", "-out", self.folder / "ca.crt"])

    def renew(self) -> None:
        """Write a new certificate of that CA, and its key, into the Secret."""
        folder = self.folder
        request = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=engine"]
        run([*request, "-keyout", folder / "tls.key", "-out", folder / "tls.csr"])
        (folder / "names").write_text(f"subjectAltName=DNS:{self.server}")
        sign = ["openssl", "x509", "-req", "-in", folder / "tls.csr", "-days", "2", "-extfile", folder / "names"]
        authority = ["-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial"]
        run([*sign, *authority, "-out", folder / "tls.crt"])
        data = {name: (folder / name).read_text() for name in ("tls.crt", "tls.key", "ca.crt")}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "engines"}, "type": "kubernetes.io/tls"}
        self.epd.run("apply", "-f", "-", stdin=yaml.safe_dump(secret | {"stringData": data}))
        for role in ROLES:  # or the kubelet looks at the pods within a minute by itself
            for pod in self.epd.pods(role):
                self.epd.run(
                    "annotate", "--overwrite", "pod", pod["metadata"]["name"], f"test/rotated={secrets.token_hex(4)}"
                )

    def address(self, role: str) -> tuple[str, int]:
        """Where the engine of a role listens."""
        url = httpx.URL(self.epd.engine(role))
        return url.host, url.port or 80

    def shown(self, role: str) -> str:
        """The certificate that the engine of a role shows."""
        return ssl.get_server_certificate(self.address(role), timeout=10).strip()

    def until_shown(self) -> None:
        """Wait until all engines show the certificate of the Secret."""
        wanted, deadline = (self.folder / "tls.crt").read_text().strip(), time.monotonic() + ROTATION_SECONDS
        while any(self.shown(role) != wanted for role in ROLES):
            assert time.monotonic() < deadline, "the certificate in the Secret is shown"
            time.sleep(1)

    def uids(self) -> set[str]:
        """The engines' pods."""
        return {pod["metadata"]["uid"] for role in ROLES for pod in self.epd.pods(role)}


@pytest.fixture(scope="module")
def engines(epd: Deployed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """The demo before TLS, with the Secret there; plain again at the end."""
    found = Engines(epd, tmp_path_factory.mktemp("engine-tls"))
    found.found()
    found.renew()
    yield found
    epd.patch({"engine": {"tls": None}})
    epd.wait_ready()
    epd.run("delete", "secret", "engines")


def test_no_request_fails_while_tls_comes(engines: Engines) -> None:
    epd, before = engines.epd, engines.uids()
    with load(epd.url()) as got:
        epd.patch({"engine": {"tls": {"secretName": "engines"}}})
        epd.wait_ready()
    assert len(got) >= 20
    assert wrong(got) == []
    assert not engines.uids() & before


def test_a_picture_is_encoded_and_answered_by_tls(engines: Engines) -> None:
    answer = ask(engines.epd.url(), [picture("green")])
    assert (answer.status, answer.text, answer.headers["x-epd-encode"]) == (200, "green", "encoded")
    trusted = ssl.create_default_context(cafile=str(engines.folder / "ca.crt"))
    for role in ROLES:
        host, port = engines.address(role)
        with httpx.Client(verify=trusted, timeout=10) as client:
            extensions = {"sni_hostname": engines.server}
            assert client.get(f"https://{host}:{port}/health", extensions=extensions).status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://{host}:{port}/health", timeout=10)


def test_each_renewal_is_shown_without_a_restart(engines: Engines) -> None:
    """Twice: what follows a Secret's files by inotify loses them at the first change."""
    before = engines.uids()
    for _ in range(2):
        engines.renew()
        engines.until_shown()
        assert ask(engines.epd.url(), [picture("red")]).status == 200
    assert engines.uids() == before


def test_who_shows_another_name_is_no_engine(engines: Engines) -> None:
    epd, before = engines.epd, engines.uids()
    epd.patch({"engine": {"tls": {"serverName": "other.example"}}})
    epd.wait_ready()
    refused = ask(epd.url(), [])
    epd.patch({"engine": {"tls": {"serverName": None}}})
    epd.wait_ready()
    assert refused.status == 503
    assert ask(epd.url(), []).status == 200
    assert engines.uids() == before
