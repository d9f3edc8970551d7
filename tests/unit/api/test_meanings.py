from __future__ import annotations

import pytest

from epd.api.meanings import CONDITIONS, REASONS
from epd.api.names import ConditionType, Reason


@pytest.mark.parametrize("type_", ConditionType)
def test_every_condition_is_explained(type_: ConditionType) -> None:
    assert CONDITIONS[type_].endswith(".")


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_explained(reason: Reason) -> None:
    assert REASONS[reason].endswith(".")
