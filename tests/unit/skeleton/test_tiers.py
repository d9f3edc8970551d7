"""The tier runner must not be able to call a failure, a skip in CI, or nothing at all a success."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiers
from tiers import Outcome, Tier

TIER = Tier(name="unit", says="", budget=10)


@pytest.mark.parametrize(
    ("outcome", "no_skip", "status", "line"),
    [
        (Outcome(TIER, passed=3), True, 0, "3 passed, 0 failed, 0 skipped"),
        (Outcome(TIER, passed=3, skipped={"no helm": 2}), False, 0, "3 passed, 0 failed, 2 skipped"),
        (Outcome(TIER, passed=3, skipped={"no helm": 2}), True, 1, "3 passed, 2 failed, 0 skipped"),
        (Outcome(TIER, passed=3, failed=1), False, 1, "3 passed, 1 failed, 0 skipped"),
        (Outcome(TIER), False, 1, "0 passed, 0 failed, 0 skipped"),
    ],
    ids=["all passed", "skipped by hand", "skipped in CI", "failed", "nothing ran"],
)
def test_summary(outcome: Outcome, no_skip: bool, status: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tiers.summary([outcome], no_skip=no_skip) == status
    assert capsys.readouterr().out.splitlines()[-1] == line


def test_every_test_directory_belongs_to_a_tier() -> None:
    tests = Path(tiers.__file__).parent
    directories = {p.relative_to(tests).parts[0] for p in tests.rglob("test_*.py")}
    assert {f"tests/{d}" for d in directories} <= {path for tier in tiers.TIERS for path in tier.paths}


def test_a_tier_without_tests_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "CACHE", tmp_path)
    assert tiers.run(Tier(name="empty", says="", budget=1, paths=(str(tmp_path),))).failed == 1
