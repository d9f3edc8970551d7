from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epd.api.collection import CollectorReport
from epd.collector import main as program
from epd.collector.inputs import Ask, Claim, Policy
from epd.collector.main import build_parser, main, usage
from epd.collector.result import Cause, PassResult, Victim
from epd.connector.entry import Shape
from epd.connector.records import Record
from epd.connector.store import Store
from unit.collector.fake_api import FakeApi, refusal, serving
from unit.collector.listed import CLAIM, EPDS, epd, namespace_ai, raw_epd

VICTIM = Victim(path="v/x", cause=Cause.TTL, used_bytes=4096, age=60)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with serving(namespace_ai()) as fake:
        yield fake


class Passes:
    """In the place of `Collection`: two slices of a pass, each with a victim."""

    made: list[tuple[str, dict[str, Any], Claim, Policy]]

    def __init__(self, root: str, *, ask: Ask, **given: Any) -> None:
        self._root, self._ask, self._given = root, ask, given

    def run(self, claim: Claim, policy: Policy) -> PassResult:
        self.made.append((self._root, self._given, claim, policy))
        assert self._ask().valid
        return PassResult(
            more=len(self.made) == 1,
            scanned_entries=1,
            victims=(VICTIM,),
            removed={Cause.TTL: 1},
            freed={Cause.TTL: 4096},
        )


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> type[Passes]:
    monkeypatch.setattr(program, "Collection", Passes)
    Passes.made = []
    return Passes


def flags(api: FakeApi, *more: str) -> list[str]:
    return [*more, "--claim=ec", "--namespace=ai", "--root=/mnt", f"--api-server={api.url}"]


def ended(argv: list[str]) -> int:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_the_flags_of_the_operator() -> None:
    given = vars(build_parser().parse_args(["--claim=ec", "--root=/var/lib/epd/encoder-cache", "--sub-path=qwen"]))
    assert given == {
        "command": "run",
        "claim": "ec",
        "sub_path": "qwen",
        "root": "/var/lib/epd/encoder-cache",
        "namespace": "",
        "api_server": "",
        "api_server_ca": "",
        "token_file": "",
        "host": "",
        "port": 8080,
        "interval": 60.0,
        "deletions_per_second": program.DELETIONS_PER_SECOND,
        "output": "table",
        "debug": False,
    }


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "--claim"),
        (["--claim=a", "--interval=soon"], "'soon' is no duration"),
        (["--claim=a", "--interval=0s"], "no time at all"),
        (["--claim=a", "--deletions-per-second=0"], "above 0"),
        (["collect", "--claim=a"], "invalid choice: 'collect'"),
        (["--claim=a", "--outp=json"], "unrecognized arguments"),
    ],
)
def test_flags_that_make_no_sense(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(argv) == 2
    assert words in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(["--help"]) == 0
    assert "epd-collector plan --claim qwen-encoder-cache --output json" in capsys.readouterr().out


def test_a_plan_goes_on_until_nothing_is_left(
    api: FakeApi, passes: type[Passes], capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(flags(api, "plan")) == 0
    assert len(passes.made) == 2
    root, given, claim, policy = passes.made[0]
    assert (root, given["name"], given["rate"]) == ("/mnt", socket.gethostname(), program.DELETIONS_PER_SECOND)
    assert (claim.name, claim.uid) == ("ai/ec", "u")
    assert (policy.enabled, policy.dry_run) == (True, True)
    assert "would remove 2 entries and free 8Ki; nothing was changed" in capsys.readouterr().out


def test_a_plan_of_what_is_disabled(api: FakeApi, passes: type[Passes], capsys: pytest.CaptureFixture[str]) -> None:
    api.collections[EPDS] = [raw_epd(collection={"enabled": False})]
    assert ended(flags(api, "plan", "--output=json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert [victim["path"] for victim in document["victims"]] == ["v/x", "v/x"]
    assert [trouble["reason"] for trouble in document["status"]["troubles"]] == ["CollectionDisabled"]


def test_a_plan_of_a_directory_names_the_dead_and_changes_nothing(
    api: FakeApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the real `Collection`, on entries that a connector wrote."""
    live, dead = epd().version, "v1-dead-0123456789ab"
    for version in (live, dead):
        store = Store(str(tmp_path), version, stamp_seconds=1)
        store.prepare(Record(version=version, claim="ai/ec", layout="Managed", created="2026-11-29T20:00:00Z"))
        store.publish("item", bytes(64), Shape(dtype="BF16", rows=2, width=16))
    before = sorted(tmp_path.rglob("*"))
    api.collections[EPDS] = [raw_epd(collection={"versionGracePeriod": "0s"})]
    assert ended([*flags(api, "plan", "--output=json"), f"--root={tmp_path}"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(victim["path"], victim["reason"]) for victim in document["victims"]] == [(dead, "dead-version")]
    assert {version["name"] for version in document["status"]["versions"]} == {live, dead}
    assert [path for path in sorted(tmp_path.rglob("*")) if "probe" not in path.parts] == before


def test_no_plan_without_the_api_server_or_the_claim(
    api: FakeApi, passes: type[Passes], capsys: pytest.CaptureFixture[str]
) -> None:
    api.fault = lambda _: refusal(403, "pods is forbidden")
    assert ended(flags(api, "plan")) == 1
    assert capsys.readouterr().err.endswith("HTTP 403: pods is forbidden\n")
    api.fault = lambda _: None
    del api.objects[CLAIM]
    assert ended(flags(api, "plan")) == 1
    assert capsys.readouterr().err == "epd-collector: there is no PersistentVolumeClaim ec in the namespace\n"
    assert not passes.made


def test_outside_of_a_pod_the_error_tells_the_flag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert ended(["plan", "--claim=ec", "--namespace=ai"]) == 1
    assert "give --api-server, for example http://127.0.0.1:8001" in capsys.readouterr().err


def test_the_share_that_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def volume(blocks: int, free: int, files: int, unused: int) -> os.statvfs_result:
        """A tenth of what is free is root's alone."""
        return os.statvfs_result((1, 1, blocks, free, free * 9 // 10, files, unused, unused, 0, 255))

    for given, expected in [((100, 20, 10, 9), 80 / 98), ((100, 90, 10, 1), 0.9), ((0, 0, 0, 0), 0.0)]:
        monkeypatch.setattr(os, "statvfs", lambda _, given=given: volume(*given))
        assert usage("/") == pytest.approx(expected)


def test_the_process_serves_and_ends_on_sigterm(api: FakeApi, tmp_path: Path) -> None:
    """The whole program, on a directory of its own."""
    argv = [sys.executable, "-m", "epd.collector.main", "--claim=ec", "--namespace=ai", f"--root={tmp_path}"]
    process = subprocess.Popen(
        [*argv, f"--api-server={api.url}", "--host=127.0.0.1", "--port=0"],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(program.__file__).parents[2])},
    )
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        assert process.stderr is not None
        port = next(found[1] for line in process.stderr if (found := re.search(r"port (\d+)", line)))

        def get(path: str) -> bytes:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return bytes(answer.read())

        assert get("/healthz") == get("/readyz") == b"ok\n"
        while not (status := CollectorReport.model_validate_json(get("/status"))).passes:
            assert process.poll() is None
        assert (status.claim, status.sub_path, status.owned, status.troubles) == ("ec", "", True, ())
        assert b'epd_gc_pass_failures_total{claim="ec",sub_path=""} 0.0' in get("/metrics")
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait() == 0
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()
