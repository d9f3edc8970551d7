"""The aggregated topology with real vLLM: one role that encodes, prefills, decodes, and uses the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.chat import ask, picture
from cluster.deployed import Deployed

pytestmark = pytest.mark.node


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("colours", [("red",), ("blue", "yellow")], ids=len)
def test_names_the_colours(aggregated: Deployed, colours: tuple[str, ...], stream: bool) -> None:
    answer = ask(aggregated.url(), [picture(c) for c in colours], stream=stream)
    assert (answer.status, answer.text) == (200, " and ".join(colours))
    assert answer.encoders == ()


def test_it_writes_the_cache(aggregated: Deployed, aggregated_store: Path) -> None:
    version = aggregated.get()["status"]["modelVersion"]
    assert list((aggregated_store / version).glob("*/*.safetensors"))


def test_its_status_speaks_of_its_own_roles_alone(aggregated: Deployed) -> None:
    status = aggregated.get()["status"]
    assert status["topology"] == "Aggregated"
    assert status["roleSummary"] == "1PD"
    kinds = {c["type"] for c in status["conditions"]}
    assert "PrefillDecodeReady" in kinds
    assert "EncodeReady" not in kinds
