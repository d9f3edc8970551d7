"""Changes under load: nothing fails, nothing of two model versions meets, and nothing restarts that need not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from cluster.chat import ask, picture
from cluster.clients import load, wrong
from cluster.deployed import Deployed

pytestmark = pytest.mark.node


def versions(epd: Deployed) -> dict[str, str]:
    """Pod name to model version, of all engines."""
    pods = [pod for role in ("encode", "prefill-decode") for pod in epd.pods(role)]
    return {p["metadata"]["name"]: p["metadata"]["labels"]["epd.dev/model-version"] for p in pods}


def test_a_changed_revision_rolls_without_a_failed_request_and_never_mixes_versions(epd: Deployed) -> None:
    old = epd.get()["status"]["modelVersion"]
    known = versions(epd)
    with load(epd.url()) as got:
        epd.patch({"model": {"revision": "2"}})
        deadline = time.monotonic() + 420
        while not (epd.get()["status"]["modelVersion"] != old and epd.condition("Ready")["status"] == "True"):
            known |= versions(epd)
            assert time.monotonic() < deadline, epd.explain()
            time.sleep(1)
        known |= versions(epd)
        time.sleep(5)
    new = epd.get()["status"]["modelVersion"]
    assert wrong(got) == []
    assert {answer.model_version for _, answer in got} == {old, new}
    mixed = [
        (answer.encoders, answer.prefill)
        for _, answer in got
        if any(known[encoder] != answer.model_version for encoder in answer.encoders)
    ]
    assert mixed == []
    assert got[-1][1].headers["x-epd-encode"] == "encoded"
    assert got[-1][1].model_version == new


def engines(epd: Deployed) -> set[str]:
    """UIDs of the engine pods."""
    return {pod["metadata"]["uid"] for role in ("encode", "prefill-decode") for pod in epd.pods(role)}


def test_helm_upgrade_disturbs_nothing(epd: Deployed, upgrade_operator: Any) -> None:
    before = engines(epd)
    with load(epd.url()) as got:
        upgrade_operator("--set", "resyncInterval=4m")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(got) < 20:
            time.sleep(1)
    assert len(got) >= 20
    assert wrong(got) == []
    assert engines(epd) == before
    assert epd.condition("Ready")["status"] == "True"


def test_a_raised_batch_size_rolls_but_keeps_the_cache(epd: Deployed) -> None:
    version = epd.get()["status"]["modelVersion"]
    before = engines(epd)
    args = epd.get()["spec"]["prefillDecode"].get("args", [])
    encoders = {pod["metadata"]["uid"] for pod in epd.pods("encode")}
    epd.patch({"prefillDecode": {"args": [*args, "--max-num-seqs=6"]}})
    epd.wait_ready()
    assert epd.get()["status"]["modelVersion"] == version
    assert {pod["metadata"]["uid"] for pod in epd.pods("encode")} == encoders
    assert engines(epd) - before
    assert ask(epd.url(), [picture("blue")]).text == "blue"
