from __future__ import annotations

import json
import logging

import pytest

from epd.controller.main import JSONFormatter, build_parser, read_options
from epd.controller.process import Options


def test_flags_as_the_chart_gives_them() -> None:
    argv = ["--namespace=a", "--namespace=b", "--namespace=a", "--operator-image=i", "--metrics-port=1"]
    argv += ["--operator-image-pull-policy=Never", "--health-port=2", "--resync-interval=1m30s", "--log-level=debug"]
    options, level, log_format = read_options(build_parser(), argv)
    assert options == Options(
        namespaces=("a", "b"), operator_image="i", operator_image_pull_policy="Never", metrics_port=1, health_port=2,
        resync=90.0, watch_lag=60.0,
    )  # fmt: skip
    assert (level, log_format) == ("debug", "text")


def test_the_image_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPD_OPERATOR_IMAGE", "from-env")
    assert read_options(build_parser(), [])[0] == Options(operator_image="from-env")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "--operator-image (or EPD_OPERATOR_IMAGE) is required"),
        (["--resync-interval=5"], "is no duration"),
        (["--resync-interval=0s"], "too short"),
        (["--health-port=99999"], "is no port"),
        (["--name=a"], "unrecognized arguments"),
    ],
)
def test_flags_that_make_no_sense_end_with_2(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EPD_OPERATOR_IMAGE", raising=False)
    with pytest.raises(SystemExit) as ended:
        read_options(build_parser(), argv)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_help_has_examples() -> None:
    assert "epd-operator --namespace ai --namespace ai-dev" in build_parser().format_help()


def test_json_logs() -> None:
    record = logging.LogRecord("n", logging.WARNING, "f", 1, "a %s", ("b",), None)
    line = json.loads(JSONFormatter().format(record))
    assert {key: line[key] for key in ("level", "logger", "message")} == {
        "level": "warning", "logger": "n", "message": "a b"
    }  # fmt: skip
