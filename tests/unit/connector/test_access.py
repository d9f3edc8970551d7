from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from epd.connector import settings
from epd.connector.access import Access
from epd.connector.store import Expectation, Rejected, Shape
from unit.connector.watched_files import WatchedFiles

VERSION = "v1-m-0123456789ab"
LONG = 30.0


def opened(root: Path, files: WatchedFiles) -> Access:
    read = settings.read({"root": str(root), "version": VERSION, "claim": "ns/claim"})
    return Access(read, files, name="access-test", threads=2)


def threads() -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(("access", "epd-ec-")))


def pinned(access: Access) -> None:
    shape = Shape(dtype="BF16", rows=3, width=4)
    access.store.prepare(settings.read({"root": "/", "version": VERSION, "claim": "ns/claim"}).record())
    access.store.publish("a", bytes(shape.nbytes), shape)
    access.store.pin(Expectation(identifier="a", rows=3, width=4, dtype="BF16"))


def test_nothing_is_touched_and_no_thread_started_before_the_first_call(tmp_path: Path) -> None:
    files = WatchedFiles()
    access = opened(tmp_path, files)
    assert (files.calls, threads()) == ([], [])
    assert access.calls.submit(lambda: access.store.holds("a")).wait(LONG)
    assert (files.calls, threads()) == (["stat"], ["access-test-0"])
    access.close()


def test_closing_ends_all_threads_and_removes_the_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPD_POD_UID", "pod")
    access = opened(tmp_path, WatchedFiles())
    pinned(access)
    assert list(tmp_path.glob(".epd-gc/pins/pod/*/*"))
    assert access.pool("access-other", 1).submit(lambda: None).wait(LONG)
    access.close()
    assert (threads(), list(tmp_path.glob(".epd-gc/pins/*"))) == ([], [])


def test_a_store_in_doubt_is_not_asked_when_it_closes(tmp_path: Path) -> None:
    gate = threading.Event()
    access = opened(tmp_path, WatchedFiles())
    pinned(access)
    hung = [access.calls.submit(gate.wait) for _ in range(2)]
    access.health.doubt()
    access.close()
    assert len(list(tmp_path.glob(".epd-gc/pins/*/*/1"))) == 1
    gate.set()
    assert all(task.wait(LONG) for task in hung)


def test_health_asks_past_every_cache_of_the_client(tmp_path: Path) -> None:
    asked = []

    def hook(number: int, name: str, args: tuple[object, ...]) -> None:
        asked.append((name, args[0]))
        raise OSError(errno.EIO, "broken, which is an answer")

    access = opened(tmp_path, WatchedFiles(hook))
    for _ in range(2):
        access.health.doubt()
        while access.health.suspect:
            pass
    access.close()
    questions = [path for name, path in asked if name == "stat"]
    assert len(set(questions)) == 2
    with pytest.raises(Rejected):
        access.store.measure(Expectation(identifier="a", rows=3, width=4, dtype="BF16"))
