"""`epd.cli.cluster` over a kubectl that is a shell script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epd.cli.cluster import ClusterError, get

OBJECT = {
    "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
    "spec": {"model": {"name": "m"}, "engine": {"image": "vllm:v0.33.0"}, "prefillDecode": {}},
}


def kubectl(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = directory / "kubectl"
    path.write_text(f"#!/bin/sh\necho \"$@\" > '{directory}/given'\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


@pytest.mark.parametrize(("namespace", "further"), [(None, ""), ("ns", " --namespace=ns")])
def test_an_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, namespace: str | None, further: str) -> None:
    kubectl(tmp_path, monkeypatch, f"cat <<'END'\n{json.dumps(OBJECT)}\nEND")
    assert get("a", namespace=namespace).metadata.uid == "u"
    assert (tmp_path / "given").read_text() == f"get epddeployments.epd.dev a --output=json{further}\n"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'error: no context' >&2; exit 1", "^no context$"),
        ("echo 'Error from server (NotFound): \"a\" not found' >&2; exit 1", "^Error from server"),
        ("echo '{}'", "^a: metadata: Field required\na: spec: Field required$"),
        ("echo text", "^kubectl's answer is no JSON"),
    ],
)
def test_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str) -> None:
    kubectl(tmp_path, monkeypatch, script)
    with pytest.raises(ClusterError, match=message):
        get("a")


def test_no_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="kubectl is not on the PATH"):
        get("a")
