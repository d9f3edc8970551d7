from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from epd import __version__
from epd.api.names import collector
from epd.api.types import EPDDeployment
from epd.cli import status
from epd.cli.cluster import ClusterError
from epd.cli.main import OPERATOR_IMAGE, describe, main, render, render_collectors
from epd.manifests import Context, desired
from epd.topology.model_version import model_version, version_inputs
from epd.topology.pairing import pairing, pairing_inputs
from unit.cli.manifests import GOOD, OTHER, write
from unit.topology.objects import ABSENT, epd

PLAIN: dict[str, Any] = {"encode": ABSENT, "encoderCache": ABSENT}


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    assert main(arguments) == 0
    return list(yaml.safe_load_all(capsys.readouterr().out))


def test_render_prints_what_would_be_applied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, f"{GOOD}---\n{OTHER}")
    found = printed(capsys, "render", "-f", path, "-n", "mine", "--operator-image", "op:1")
    names = [(child["kind"], child["metadata"]["namespace"], child["metadata"]["name"]) for child in found]
    assert ("Deployment", "mine", "a-prefilldecode") in names
    assert ("Service", "ns", "b") in names
    images = {
        container["image"]
        for child in found
        if child["kind"] == "Deployment"
        for container in child["spec"]["template"]["spec"]["containers"]
    }
    assert images == {"vllm:v0.33.0", "op:1"}
    assert not [child for child in found if "ownerReferences" in child["metadata"]]


def test_render_of_an_object_from_a_cluster_is_whole() -> None:
    given = epd()
    assert render(given, operator_image="op:1") == list(desired(given, Context(operator_image="op:1", preflight=True)))


SHARED: dict[str, Any] = {"encoderCache.volume": {"persistentVolumeClaim": {"claimName": "ec"}}}


def test_users_of_one_claim_have_one_collector() -> None:
    own_directory = {"encoderCache.volume": {"persistentVolumeClaim": {"claimName": "ec", "subPath": "c"}}}
    objects = [
        *(epd(SHARED, name="a"), epd(SHARED, name="b"), epd(own_directory, name="c")),
        *(epd(SHARED | {"encoderCache.garbageCollection": {"enabled": False}}, name="d"), epd(PLAIN, name="e")),
    ]
    found = render_collectors(objects, operator_image="op:1")
    deployments = [child["metadata"]["name"] for child in found if child["kind"] == "Deployment"]
    assert deployments == ["ec-collector", collector("ec", "c")]
    assert len(found) == 2 * 4
    assert render_collectors(objects[3:], operator_image="op:1") == []


def test_version_tells_the_keys_and_what_they_are_made_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = printed(capsys, "version", "-f", write(tmp_path, GOOD))
    assert found["name"] == "a"
    assert found["modelVersion"].startswith("v1-m-")
    assert found["engineVersion"] == {"version": "0.33.0", "origin": "Tag"}


def test_describe() -> None:
    given = epd({"engine.args": ["--max-num-seqs", "8"]})
    assert describe(given) == {
        "name": "qwen-vl",
        "topology": "E|PD",
        "url": "http://qwen-vl.ai.svc",
        "engineVersion": {"version": "0.33.0", "origin": "Tag"},
        "modelVersion": model_version(given.spec),
        "modelVersionMadeOf": version_inputs(given.spec),
        "leftOutAsHarmless": ["--max-num-seqs"],
        "pairing": pairing(given),
        "pairingMadeOf": pairing_inputs(given),
    }


def test_a_bad_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, "kind: Pod")
    assert main(["render", "-f", path]) == 1
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"error: {path}: no object of kind EPDDeployment\n")


@pytest.mark.parametrize("arguments", [[], ["render"], ["status"], ["no-such-command"]])
def test_a_bad_command_line_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: kubectl epd" in capsys.readouterr().err


def test_status_prints_what_the_cluster_has(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def get(name: str, *, namespace: str | None) -> EPDDeployment:
        asked.append((name, namespace))
        if name == "gone":
            raise ClusterError("not found")
        return epd()

    monkeypatch.setattr("epd.cli.main.get", get)
    assert main(["status", "qwen-vl", "-n", "ai"]) == 0
    assert capsys.readouterr().out == status.describe(epd())
    assert main(["status", "gone"]) == 1
    assert capsys.readouterr().err == "error: not found\n"
    assert asked == [("qwen-vl", "ai"), ("gone", None)]


def test_own_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"{__version__}\n"
    assert OPERATOR_IMAGE.endswith(f":{__version__}")
