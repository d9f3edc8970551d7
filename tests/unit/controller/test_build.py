"""What a spec cannot be run for, as `Stalled` says it."""

from __future__ import annotations

from typing import Any

import pytest

from epd.api.types import EPDDeployment
from epd.controller.build import ThisBuild

BUILD = ThisBuild(operator_image="epd-operator:test")


def epd(engine: dict[str, Any]) -> EPDDeployment:
    """An aggregated deployment with this engine."""
    spec = {"model": {"name": "m"}, "engine": {"image": "vllm:v0.32.0"} | engine, "prefillDecode": {}}
    return EPDDeployment.model_validate({"metadata": {"name": "a", "namespace": "n"}, "spec": spec})


@pytest.mark.parametrize(
    ("engine", "reason", "words"),
    [
        ({"image": "vllm:v0.27.1"}, "UnsupportedEngine", ("0.27.1", "0.28", "spec.engine.version")),
        ({"version": "0.20.0"}, "UnsupportedEngine", ("0.20.0", "spec.engine.version")),
        ({"args": ["--ec-transfer", "{}"]}, "OwnedField", ("spec.engine.args[0]", "--ec-transfer-config")),
        (
            {"args": ["--ec-transfer", "{}", "--kv-transfer", "{}"]},
            "OwnedField",
            ("spec.engine.args[0]", "; spec.engine.args[2]"),
        ),
    ],
)
def test_what_cannot_be_run_is_told_with_its_fix(engine: dict[str, Any], reason: str, words: tuple[str, ...]) -> None:
    found = BUILD.problem(epd(engine))
    assert found is not None
    assert (found.status, found.reason) == ("True", reason)
    assert [word for word in words if word not in found.message] == []


@pytest.mark.parametrize("engine", [{}, {"image": "vllm:v0.28.0"}, {"image": "vllm:prod"}, {"version": "0.40"}])
def test_what_can_be_run_is_no_problem(engine: dict[str, Any]) -> None:
    assert BUILD.problem(epd(engine)) is None
