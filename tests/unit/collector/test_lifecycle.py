from __future__ import annotations

from typing import Any

import pytest

from epd.collector.clock import Reading
from epd.collector.inputs import Liveness
from epd.collector.lifecycle import Kind, Standing, Step, decide
from unit.collector.tree import policy

V = "v1-a-00000000000a"


def step(standing: Standing, *, grace: float = 100.0, enabled: bool = True, **changed: Any) -> Step:
    told: dict[str, Any] = {"valid": True, "live": {}, "taken": 0.0}
    clock = {key: changed.pop(key) for key in ("now", "reliable", "steady") if key in changed}
    monotonic = changed.pop("monotonic", 0.0)
    reading = Reading(**({"now": 1000.0, "reliable": True, "steady": float("inf"), "skew": 0.0} | clock))
    liveness = Liveness(**(told | changed))
    (found,) = decide([standing], liveness, policy(version_grace=grace, enabled=enabled), reading, monotonic)
    return found


@pytest.mark.parametrize(
    ("present", "condemned", "changed", "kind"),
    [
        (True, None, {}, Kind.CONDEMN),
        (True, None, {"live": {V: ()}}, Kind.NOTHING),
        (True, 500.0, {"live": {V: ()}}, Kind.ABSOLVE),
        (True, 901.0, {}, Kind.NOTHING),
        (True, 900.0, {}, Kind.REMOVE),
        (True, 2000.0, {}, Kind.NOTHING),  # a mark of the future has age 0
        (False, 500.0, {}, Kind.ABSOLVE),
        (False, None, {}, Kind.NOTHING),
        (True, None, {"expedited": frozenset({V})}, Kind.REMOVE),
        (True, None, {"expedited": frozenset({V}), "live": {V: ()}}, Kind.NOTHING),
        (True, None, {"grace": 0.0}, Kind.REMOVE),
        # 4: no change without a list that may be acted on
        (True, None, {"valid": False}, Kind.NOTHING),
        (True, 0.0, {"valid": False}, Kind.NOTHING),
        (True, 0.0, {"valid": False, "live": {V: ()}}, Kind.NOTHING),
        (True, 0.0, {"monotonic": 300.0}, Kind.REMOVE),
        (True, 0.0, {"monotonic": 300.1}, Kind.NOTHING),
        # 10: nor by a clock that jumped, until the grace has passed since
        (True, 0.0, {"reliable": False}, Kind.NOTHING),
        (True, 0.0, {"steady": 99.0}, Kind.NOTHING),
        (True, 0.0, {"steady": 100.0}, Kind.REMOVE),
        (True, 0.0, {"enabled": False}, Kind.NOTHING),
        (True, 0.0, {"enabled": False, "live": {V: ()}}, Kind.ABSOLVE),
    ],
)
def test_step(present: bool, condemned: float | None, changed: dict[str, Any], kind: Kind) -> None:
    assert step(Standing(version=V, present=present, condemned=condemned), **changed).kind is kind


def test_expedited_version_must_have_been_unused_for_no_time() -> None:
    standing = Standing(version=V, present=True)

    assert step(standing, expedited=frozenset({V})).grace == 0
    assert step(standing).grace == 100
