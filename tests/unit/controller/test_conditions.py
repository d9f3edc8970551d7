from __future__ import annotations

from epd.api.names import ConditionType
from epd.api.types import Condition
from epd.controller.conditions import Finding, merge, shorten


def test_times_move_only_with_the_status() -> None:
    before = [
        Condition(type="Ready", status="False", reason="Starting", last_transition_time="t0", observed_generation=1),
        Condition(type="Available", status="False", reason="NotServing", last_transition_time="t0"),
        Condition(type="EncodeReady", status="True", reason="AsSpecified", last_transition_time="t0"),
    ]
    findings = {
        ConditionType.READY: Finding.false("RollingOut", "new words"),
        ConditionType.AVAILABLE: Finding.true("Serving", ""),
        ConditionType.STALLED: Finding.false("AsSpecified", ""),
    }
    merged = merge(before, findings, generation=2, now="t1")
    assert [(c.type, c.status, c.reason, c.last_transition_time, c.observed_generation) for c in merged] == [
        ("Available", "True", "Serving", "t1", 2),
        ("Ready", "False", "RollingOut", "t0", 2),
        ("Stalled", "False", "AsSpecified", "t1", 2),
    ]


def test_long_words_are_cut_at_whole_characters() -> None:
    assert shorten("a" * 1024) == "a" * 1024
    assert shorten("a" * 1025) == "a" * 1021 + "..."
    assert shorten("é" * 600) == "é" * 510 + "..."
