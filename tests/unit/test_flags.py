from __future__ import annotations

import argparse

import pytest

from epd.flags import add_count, add_duration, parse_duration, typed


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    group = made.add_argument_group("all")
    add_duration(group, "--wait", 90, "longest wait")
    add_count(group, "--most", 7, "most of them", least=2)
    group.add_argument("--number", type=typed(float))
    return made


def test_defaults_and_values() -> None:
    assert vars(parser().parse_args([])) == {"wait": 90, "most": 7, "number": None}
    given = parser().parse_args(["--wait", "1h30m", "--most", "2", "--number", "0.5"])
    assert vars(given) == {"wait": 5400, "most": 2, "number": 0.5}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--wait 10", "argument --wait: '10' is no duration"),
        ("--wait 0s", "argument --wait: '0s' is no time at all"),
        ("--most 1", "argument --most: must be at least 2"),
        ("--most x", "argument --most: invalid literal"),
        ("--number x", "argument --number: could not convert string to float"),
    ],
)
def test_what_is_wrong_is_said(flags: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(flags.split())
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_help_names_defaults() -> None:
    words = " ".join(parser().format_help().split())
    assert "--wait TIME longest wait (default 90s)" in words
    assert "--most N most of them (default 7)" in words


def test_durations() -> None:
    assert [parse_duration(text) for text in ("90s", "10m", "1h30m")] == [90, 600, 5400]


@pytest.mark.parametrize("text", ["", "0s", "10", "1d", "-1s", "1s1m"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        parse_duration(text)
