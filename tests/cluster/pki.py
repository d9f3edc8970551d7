"""Makes the keys, tokens and kubeconfigs of one cluster with openssl."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Sequence
from pathlib import Path

from .steps import run

DAYS = "30"


def make(folder: Path, *, addresses: Sequence[str]) -> None:
    """Writes ca.crt, apiserver.crt and .key for `addresses`, sa.key and .pub, and tokens.csv, unless they are there."""
    if (folder / "tokens.csv").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"])
    run(["openssl", "rsa", "-in", folder / "sa.key", "-pubout", "-out", folder / "sa.pub"])
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes"]
    run(
        [*new, "-x509", "-days", DAYS, "-subj", "/CN=epd-test", "-keyout", folder / "ca.key", "-out", folder / "ca.crt"]
    )
    request = folder / "apiserver.csr"
    run([*new, "-subj", "/CN=kube-apiserver", "-keyout", folder / "apiserver.key", "-out", request])
    names = ["DNS:localhost", "DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc"]
    extension = folder / "apiserver.ext"
    extension.write_text("subjectAltName=" + ",".join([*names, *(f"IP:{address}" for address in addresses)]))
    sign = ["openssl", "x509", "-req", "-in", request, "-CA", folder / "ca.crt", "-CAkey", folder / "ca.key"]
    run([*sign, "-CAcreateserial", "-days", DAYS, "-extfile", extension, "-out", folder / "apiserver.crt"])
    admin, node = secrets.token_hex(16), secrets.token_hex(16)
    (folder / "tokens.csv").write_text(
        f'{admin},admin,admin,"system:masters"\n{node},system:node:node-1,node-1,"system:nodes"\n'
    )


def kubeconfig(path: Path, *, server: str, pki: Path, user: str = "admin") -> None:
    """Writes a kubeconfig that stands alone; `user` is the second column of tokens.csv."""
    tokens = [line.split(",") for line in (pki / "tokens.csv").read_text().splitlines()]
    (token,) = [fields[0] for fields in tokens if fields[1] == user]
    authority = base64.b64encode((pki / "ca.crt").read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "epd", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "epd", "context": {"cluster": "epd", "user": user}}],
        "current-context": "epd",
    }
    path.write_text(json.dumps(config, indent=1))  # JSON is YAML
    path.chmod(0o600)
