from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from epd.collector.endpoint import ApiError, by_address, in_cluster, own_namespace


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8001", "ftp://a", "https://", "https://a/b", "https://a?b", "http://a:b"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ApiError, match="is no address"):
        by_address(url)


def test_certificates_are_verified_by_default() -> None:
    endpoint = by_address("https://[::1]:6443")
    assert (endpoint.host, endpoint.port) == ("::1", 6443)
    assert endpoint.tls is not None
    assert (endpoint.tls.verify_mode, endpoint.tls.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_a_ca_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="can't be read as CA"):
        by_address("https://a", ca_file=str(tmp_path / "none"))


def test_outside_of_a_pod(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match=r"not in a pod.*kubectl proxy"):
        in_cluster({})
    with pytest.raises(ApiError, match=r"automountServiceAccountToken"):
        in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}, str(tmp_path))
    with pytest.raises(ApiError, match="give --namespace"):
        own_namespace(str(tmp_path))


def test_the_namespace_of_the_pod(tmp_path: Path) -> None:
    (tmp_path / "namespace").write_text("ai\n")
    assert own_namespace(str(tmp_path)) == "ai"
