"""Where the API server is, whom it shall trust and who asks: from the pod, or from an address. Asks it nothing."""

from __future__ import annotations

import http.client
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where the kubelet puts a pod's token, the cluster's CA and the namespace."""
_MOST_BYTES: Final = 1 << 16
"""Of a token or a namespace: a token with many audiences has some 2 KB."""


class ApiError(Exception):
    """The API server cannot be found, or gave no whole answer. `status` is that of HTTP, None where there was none."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where the API server is. Without `tls` it is spoken to in plain text, and no token is sent."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    token_file: str = ""
    """Read before each request: the kubelet replaces tokens hourly."""

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection that is not open yet."""
        if self.tls is None:
            return http.client.HTTPConnection(self.host, self.port)
        return http.client.HTTPSConnection(self.host, self.port, context=self.tls)

    def authorization(self) -> dict[str, str]:
        """Return the headers that tell who asks. Raises ApiError: the token can't be read."""
        if not (self.token_file and self.tls):
            return {}
        try:
            token = _read(self.token_file)
        except OSError as error:
            raise ApiError(f"the service account's token can't be read: {error}") from error
        return {"Authorization": f"Bearer {token}"}


def in_cluster(environment: Mapping[str, str], account: str = SERVICE_ACCOUNT) -> Endpoint:
    """Return the endpoint of the cluster whose pod this process runs in.

    Raises:
        ApiError: it runs in none, or without a service account.
    """
    try:
        host, port = environment["KUBERNETES_SERVICE_HOST"], int(environment["KUBERNETES_SERVICE_PORT"])
        tls = ssl.create_default_context(cafile=f"{account}/ca.crt")
    except (KeyError, ValueError) as error:
        raise ApiError(
            "not in a pod (no KUBERNETES_SERVICE_HOST): give --api-server, for example http://127.0.0.1:8001 while"
            " `kubectl proxy` runs"
        ) from error
    except OSError as error:
        raise ApiError(
            f"{account}/ca.crt can't be read ({error}): does the pod have automountServiceAccountToken: true?"
        ) from error
    return Endpoint(host=host, port=port, tls=tls, token_file=f"{account}/token")


def by_address(url: str, *, ca_file: str = "", token_file: str = "") -> Endpoint:
    """Return the endpoint of an address such as `https://10.0.0.1:6443`; `http://` only for `kubectl proxy`.

    Raises:
        ApiError: no address, a CA file that can't be read, or a token that would be sent in plain text.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ApiError(f"{url!r} is no address: {error}") from error
    if parts.scheme not in ("http", "https") or not host or parts.path.strip("/") or parts.query:
        raise ApiError(f"{url!r} is no address such as https://10.0.0.1:6443")
    if parts.scheme == "http":
        if token_file:
            raise ApiError("a token is not sent over http://: give an https:// address, or no token")
        return Endpoint(host=host, port=port or 80)
    try:
        tls = ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise ApiError(f"{ca_file} can't be read as CA certificates: {error}") from error
    return Endpoint(host=host, port=port or 443, tls=tls, token_file=token_file)


def own_namespace(account: str = SERVICE_ACCOUNT) -> str:
    """Return the namespace of the pod that this process runs in. Raises ApiError where it runs in none."""
    try:
        return _read(f"{account}/namespace")
    except OSError as error:
        raise ApiError("not in a pod: give --namespace") from error


def _read(path: str) -> str:
    """Not through the seam of the store: these files are the kubelet's, on the node's memory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, _MOST_BYTES).decode().strip()
    finally:
        os.close(descriptor)
