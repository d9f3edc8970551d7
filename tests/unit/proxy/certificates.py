"""Certificates of engines and clients, made by the openssl command once per run."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

NAME = "engine.test"


@dataclass(frozen=True)
class Certificates:
    """`ca.pem` and `other.pem` are CAs; every `NAME.pem` has its key in `NAME.key`."""

    folder: Path

    def path(self, name: str) -> Path:
        return self.folder / name

    def server(self, name: str = "engine", *, clients: str = "") -> ssl.SSLContext:
        """A server's context; with `clients` (a CA) it wants a certificate of whoever connects."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.path(f"{name}.pem"), self.path(f"{name}.key"))
        if clients:
            context.load_verify_locations(self.path(clients))
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def copy(self, name: str, to: Path) -> Path:
        return Path(shutil.copyfile(self.path(name), to))


@cache
def certificates() -> Certificates:
    folder = Path(mkdtemp(prefix="epd-certificates-"))

    def openssl(words: str) -> None:
        subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)

    def key(name: str) -> None:
        openssl(f"ecparam -name prime256v1 -genkey -noout -out {name}.key")

    def authority(name: str) -> None:
        key(name)
        openssl(f"req -x509 -new -key {name}.key -subj /CN={name} -days 2 -out {name}.pem")

    def leaf(name: str, ca: str, names: str, *, days: int = 2) -> None:
        key(name)
        openssl(f"req -new -key {name}.key -subj /CN={name} -addext subjectAltName={names} -out {name}.csr")
        openssl(
            f"x509 -req -in {name}.csr -CA {ca}.pem -CAkey {ca}.key -CAcreateserial -days {days} "
            f"-copy_extensions copy -out {name}.pem"
        )

    authority("ca")
    authority("other")
    leaf("engine", "ca", f"DNS:{NAME},IP:127.0.0.1")
    leaf("pod", "ca", f"DNS:{NAME}")
    leaf("expired", "ca", "IP:127.0.0.1", days=-1)
    leaf("stranger", "other", "IP:127.0.0.1")
    leaf("proxy", "ca", "DNS:proxy.test")
    return Certificates(folder)
