from __future__ import annotations

import pytest

from epd.proxy.main import build_parser, read_settings
from epd.proxy.script_flags import ENGINES_REGISTER_NOT, ONE_REPLICA, PROBED_FOREVER, TWO_TRIES
from epd.proxy.settings import Probing, Settings

ENGINES = ("--encode-servers-urls", "http://e:1", "--decode-servers-urls", "http://d:1")
SCRIPT = """--host --port --dynamic-registration --probe-interval --probe-timeout --fail-threshold --evicted-ttl
    --log-requests --no-rewrite --encode-servers-urls --prefill-servers-urls --decode-servers-urls --decode-retries
    --ec-consumer-zmq-addrs --ec-consumer-dp-size"""
"""All flags of examples/disaggregated/disaggregated_encoder/disagg_epd_proxy.py in the sdist of vLLM 0.33.0."""


def settings(*flags: str) -> Settings:
    parser = build_parser()
    return read_settings(parser, parser.parse_args([*ENGINES, *flags]))


def test_every_flag_of_the_script_is_known() -> None:
    known = {option for action in build_parser()._actions for option in action.option_strings}
    assert set(SCRIPT.split()) <= known


def test_probing_is_as_asked() -> None:
    assert settings().probing == Probing()
    read = settings("--probe-interval", "0.5", "--probe-timeout", "2", "--fail-threshold", "3")
    assert read.probing == Probing(interval_seconds=0.5, timeout_seconds=2, failures=3)


def test_what_is_so_anyway_may_be_said() -> None:
    flags = ("--decode-retries", "1", "--ec-consumer-dp-size", "1", "--ec-consumer-zmq-addrs", "", "--evicted-ttl", "0")
    assert settings(*flags) == settings()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--dynamic-registration"], ENGINES_REGISTER_NOT),
        (["--decode-retries", "0"], TWO_TRIES),
        (["--decode-retries", "3"], TWO_TRIES),
        (["--ec-consumer-dp-size", "2"], ONE_REPLICA),
        (["--evicted-ttl", "900"], PROBED_FOREVER),
        (["--probe-interval", "0"], "must be more than 0 seconds"),
        (["--probe-timeout", "inf"], "must be more than 0 seconds"),
        (["--fail-threshold", "0"], "must be at least 1"),
    ],
)
def test_what_can_not_be_had_is_refused_with_words(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        settings(*flags)
    assert stop.value.code == 2
    assert f"argument {flags[0]}: {words}" in capsys.readouterr().err
