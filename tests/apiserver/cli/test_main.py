"""`kubectl epd status` with a real kubectl and API server."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from apiserver.api.objects import E_PD
from apiserver.server import Namespace
from cluster import paths
from epd.cli.main import main

pytestmark = pytest.mark.apiserver


@pytest.fixture(autouse=True)
def kubectl_of_the_server(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(namespace.server.kubeconfig))
    monkeypatch.setenv("KUBECACHEDIR", str(namespace.server.cache))
    monkeypatch.setenv("PATH", f"{Path(paths.tool('kubectl')).parent}{os.pathsep}{os.environ['PATH']}")


def test_an_object_that_no_operator_has_seen(namespace: Namespace, capsys: pytest.CaptureFixture[str]) -> None:
    namespace.apply(E_PD)

    assert main(["status", "demo", "--namespace", namespace.name]) == 0

    assert capsys.readouterr().out == (
        f"{namespace.name}/demo\n"
        "The operator has not seen the latest change of the spec yet; what follows speaks of earlier ones.\n"
        "\n"
        "CONDITION  STATUS   REASON\n"
        "Ready      Unknown  Pending\n"
        "\n"
        "Ready: Pending\n"
        "  Waiting for the operator\n"
        "  Not looked at yet, or a child is being made. Wait.\n"
    )


def test_no_object(namespace: Namespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "demo", "--namespace", namespace.name]) == 1

    assert 'epddeployments.epd.dev "demo" not found' in capsys.readouterr().err
