from __future__ import annotations

import ast
import errno
import json
import os
import shutil
import sys
import threading
from pathlib import Path

import pytest

from epd import preflight
from epd.preflight import StepError, check, file_system, fix, main, run_step


def failing(code: int, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Makes the system call of one step fail."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    owner = os if name in ("link", "fsync", "utime") else Path
    monkeypatch.setattr(owner, name, fail)


def test_a_good_directory(tmp_path: Path) -> None:
    report = check(tmp_path)
    mode = f"{tmp_path.stat().st_mode & 0o7777:04o}"
    kind = report.pop("fsType")
    assert kind
    assert report == {
        "ok": True,
        "uid": os.getuid(),
        "gid": os.getgid(),
        "lacks": [],
        "owner": tmp_path.stat().st_uid,
        "group": tmp_path.stat().st_gid,
        "mode": mode,
    }
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "code", "step", "name"),
    [
        ("mkdir", errno.EACCES, "mkdir", "EACCES"),
        ("fsync", errno.ENOSPC, "create", "ENOSPC"),
        ("link", errno.EIO, "link", "EIO"),
        ("rename", errno.EPERM, "rename", "EPERM"),
        ("read_bytes", errno.ESTALE, "read", "ESTALE"),
        ("unlink", errno.EROFS, "unlink", "EROFS"),
    ],
)
def test_what_fails_is_named_with_its_fix(
    call: str, code: int, step: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(code, monkeypatch, call)
    report = check(tmp_path)
    monkeypatch.undo()
    assert (report["ok"], report["step"], report["errno"]) == (False, step, name)
    assert (report["uid"], report["gid"], report["owner"]) == (os.getuid(), os.getgid(), tmp_path.stat().st_uid)
    assert report["fix"] == fix(code, uid=os.getuid(), gid=os.getgid())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS])
@pytest.mark.parametrize(("call", "lack"), [("link", "link"), ("utime", "utimens"), ("chmod", "mode")])
def test_what_the_store_can_do_without_is_a_lack(
    call: str, lack: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(code, monkeypatch, call)
    report = check(tmp_path)
    assert (report["ok"], report["lacks"]) == (True, [lack])
    assert list(tmp_path.iterdir()) == []


def test_calls_that_do_nothing_are_seen_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "chmod", lambda *_: None)
    monkeypatch.setattr(os, "link", lambda source, target: shutil.copy(source, target))
    report = check(tmp_path)
    assert (report["ok"], report["lacks"]) == (True, ["mode", "linkCount"])


def test_a_directory_that_cannot_be_renamed_is_a_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def of_files_only(path: Path, target: Path) -> Path:
        if path.is_dir():
            raise OSError(errno.EXDEV, "")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", of_files_only)
    report = check(tmp_path)
    assert (report["ok"], report["lacks"]) == (True, ["renameDirectory"])
    assert list(tmp_path.iterdir()) == []


def test_times_that_stay_are_a_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    utime = os.utime
    monkeypatch.setattr(os, "utime", lambda path, times=None: utime(path, (1, 1)))
    assert check(tmp_path)["lacks"] == ["utimens"]


def test_another_size_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda *_: 0)
    report = check(tmp_path)
    assert (report["step"], report["errno"]) == ("read", "EIO")


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    report = check(tmp_path / "none")
    assert (report["step"], report["errno"]) == ("mkdir", "ENOENT")
    assert "owner" not in report


def test_a_file_server_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answered, removed = threading.Event(), list[object]()
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: answered.wait())
    monkeypatch.setattr(Path, "stat", lambda *_, **__: pytest.fail("asked the dead server again"))
    monkeypatch.setattr(shutil, "rmtree", lambda *given, **_: removed.append(given))
    try:
        report = check(tmp_path, seconds=0.01)
    finally:
        answered.set()
    monkeypatch.undo()
    assert removed == []
    assert report == {
        "ok": False,
        "step": "mkdir",
        "errno": "ETIMEDOUT",
        "uid": os.getuid(),
        "gid": os.getgid(),
        "fix": "the file server does not answer: look at it and at the node's mount",
    }


def test_a_step_that_fails_in_its_thread_fails_here() -> None:
    def fail() -> None:
        raise OSError(errno.EDQUOT, "")

    with pytest.raises(StepError) as caught:
        run_step("create", fail)
    assert (caught.value.step, caught.value.code) == ("create", errno.EDQUOT)


MOUNTS = """\
overlay / overlay rw 0 0
server:/export /var/lib/epd/encoder-cache nfs4 rw 0 0
tmpfs /var/lib/epd/with\\040space tmpfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/epd/encoder-cache", "nfs4"),
        ("/var/lib/epd/encoder-cache/a", "nfs4"),
        ("/var/lib/epd/encoder-cached", "overlay"),
        ("/var/lib/epd/with space", "tmpfs"),
    ],
)
def test_file_system(path: str, kind: str) -> None:
    assert file_system(Path(path), MOUNTS) == kind
    assert file_system(Path(path), "") == ""


def test_the_deepest_mount_counts_and_of_one_place_the_last() -> None:
    assert file_system(Path("/a/b"), "x /a nfs rw\nx / overlay rw\n") == "nfs"
    assert file_system(Path("/a/b"), "x /a nfs rw\nx /a cephfs rw\n") == "cephfs"


def test_fix_of_a_missing_right_names_user_and_field() -> None:
    text = fix(errno.EACCES, uid=1000, gid=2000)
    assert "chown 1000:2000" in text
    assert "spec.securityContext.runAsUser" in text


@pytest.mark.parametrize(("sub", "status"), [("", 0), ("none", 1)])
def test_the_report_is_the_pods_last_message(
    sub: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, root = tmp_path / "log", tmp_path / "root"
    root.mkdir()
    assert main([str(root / sub)], termination_log=log) == status
    report = json.loads(log.read_text())
    assert report["ok"] is (status == 0)
    *progress, last = capsys.readouterr().out.splitlines()
    assert json.loads(last) == report
    assert progress[0].startswith("mkdir in ")


def test_a_message_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)], termination_log=tmp_path / "none" / "log") == 0
    assert "No such file or directory" in capsys.readouterr().err


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().err.startswith("usage: ")


def test_it_needs_the_standard_library_only() -> None:
    tree = ast.parse(Path(preflight.__file__).read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
