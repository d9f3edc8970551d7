from __future__ import annotations

import pytest

from epd.api.types import Condition
from epd.controller.events import Note, news


def condition(type_: str, status: str, reason: str, message: str = "m") -> Condition:
    return Condition(type=type_, status=status, reason=reason, message=message, last_transition_time="t")


PULL = condition("EncodeReady", "False", "ImagePull")
FULL = condition("EncoderCacheHealthy", "False", "OverWatermark", "90 %")


@pytest.mark.parametrize(
    ("before", "after", "notes"),
    [
        ([], [PULL], [Note("Warning", "EncodeImagePull", "m")]),
        ([PULL], [PULL], []),
        ([PULL], [condition("EncodeReady", "False", "ImagePull", "other")],
         [Note("Warning", "EncodeImagePull", "other")]),
        ([], [condition("EncodeReady", "False", "Starting")], []),
        ([], [condition("StorageReady", "Unknown", "Checking")], []),
        ([], [condition("StorageReady", "False", "NotWritable")], [Note("Warning", "NotWritable", "m")]),
        ([], [condition("Stalled", "True", "NameTaken")], [Note("Warning", "NameTaken", "m")]),
        ([], [condition("Stalled", "False", "AsSpecified")], []),
        ([], [condition("Ready", "False", "EncodeImagePull")], []),
        ([], [condition("Ready", "False", "Retrying")], [Note("Warning", "Retrying", "m")]),
        ([], [condition("Ready", "True", "AllReady")], [Note("Normal", "AllReady", "m")]),
        ([condition("Ready", "True", "AllReady")], [condition("Ready", "True", "AllReady", "7E")], []),
        ([condition("Ready", "True", "AllReady")], [condition("Ready", "False", "RollingOut")],
         [Note("Normal", "RollingOut", "m")]),
        ([], [condition("Ready", "False", "RollingOut")], []),
        ([], [condition("Available", "True", "Serving")], [Note("Normal", "Serving", "m")]),
        ([], [condition("Reconciling", "True", "Starting")], []),
        ([], [FULL], [Note("Warning", "OverWatermark", "90 %")]),
        ([FULL], [condition("EncoderCacheHealthy", "False", "OverWatermark", "91 %")], []),
        ([FULL], [condition("EncoderCacheHealthy", "False", "NotWritable")], [Note("Warning", "NotWritable", "m")]),
        ([], [condition("EncoderCacheHealthy", "Unknown", "Starting")], []),
        ([], [condition("UpdateAvailable", "True", "UpdateAvailable")], [Note("Normal", "UpdateAvailable", "m")]),
    ],
)  # fmt: skip
def test_news(before: list[Condition], after: list[Condition], notes: list[Note]) -> None:
    assert list(news(before, after)) == notes
