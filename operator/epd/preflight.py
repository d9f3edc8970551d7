"""The check that runs in the preflight Job: can this user work on the encoder cache's volume as the store needs it?

Run as `python -m epd.preflight ROOT` under the engines' uid. Standard library only. Leaves nothing behind, touches
nothing that it did not make, and says in one JSON object what failed and what mends it, or what the volume lacks.
Shared memory is not looked at: this pod's is not the engines', whose size is set where they are rendered.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

TERMINATION_LOG: Final = Path("/dev/termination-log")
STEP_SECONDS: Final = 60
"""A hard NFS mount waits for ever for its server; one file operation that takes a minute is as good as none."""
_CONTENT: Final = b"epd-operator preflight\n"

_UNSUPPORTED: Final = {
    errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES, errno.EINVAL, errno.EXDEV, errno.ENOTTY,
}  # fmt: skip
"""What file systems answer to what they cannot do. Of a step that the store can do without it is a lack."""

_FILE_MODE: Final = 0o660
"""As entries have it (`epd.connector.layout`)."""

Report = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One thing to try. `spare`: without it the store works, but less well."""

    name: str
    action: Callable[[], object]
    spare: bool = False


class StepError(Exception):
    """One step failed; `code` is its errno."""

    def __init__(self, step: str, code: int) -> None:
        super().__init__(f"{step}: {os.strerror(code)}")
        self.step, self.code = step, code


def _create(path: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, _CONTENT)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path) -> None:
    """Other engines have the same user, so what it wrote must be readable to it, and whole."""
    if path.stat().st_size != len(_CONTENT) or path.read_bytes() != _CONTENT:
        raise OSError(errno.EIO, "read back something else than was written")


def _set_mode(path: Path) -> None:
    path.chmod(_FILE_MODE)
    if stat.S_IMODE(path.stat().st_mode) != _FILE_MODE:
        raise OSError(errno.EPERM, "the mode did not change")


def _count_links(path: Path, link: Path) -> None:
    if link.exists() and path.stat().st_nlink != 2:
        raise OSError(errno.EOPNOTSUPP, "a second name is not counted")


def _stamp(path: Path) -> None:
    """What a use is noted by, and the server's time told by."""
    os.utime(path, (1, 1))
    os.utime(path)
    if path.stat().st_mtime <= 1:
        raise OSError(errno.EOPNOTSUPP, "the time did not change")


def _move_directory(source: Path, target: Path) -> None:
    source.mkdir()
    (source / "entry").touch()
    source.rename(target)
    if not (target / "entry").exists():
        raise OSError(errno.EOPNOTSUPP, "what was in the directory did not move with it")


def _steps(directory: Path) -> Iterator[Step]:
    first, second, link = directory / "first", directory / "second", directory / "link"
    yield Step("mkdir", lambda: directory.mkdir(mode=0o700))
    yield Step("create", lambda: _create(first))
    yield Step("mode", lambda: _set_mode(first), spare=True)
    yield Step("link", lambda: os.link(first, link), spare=True)
    yield Step("linkCount", lambda: _count_links(first, link), spare=True)
    yield Step("utimens", lambda: _stamp(first), spare=True)
    yield Step("rename", lambda: first.rename(second))
    yield Step("read", lambda: _read(second))
    yield Step("unlink", lambda: second.unlink())
    yield Step("renameDirectory", lambda: _move_directory(directory / "version", directory / "trash"), spare=True)
    yield Step("rmdir", lambda: shutil.rmtree(directory))


def run_step(name: str, action: Callable[[], object], *, seconds: float = STEP_SECONDS) -> None:
    """Run one file operation in a thread of its own, so that a hanging mount is noticed.

    Raises:
        StepError: it failed, or did not end within `seconds` (ETIMEDOUT).
    """
    failures: list[int] = []

    def target() -> None:
        try:
            action()
        except OSError as error:
            failures.append(error.errno or errno.EIO)

    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise StepError(name, errno.ETIMEDOUT)
    if failures:
        raise StepError(name, failures[0])


def file_system(path: Path, mounts: str) -> str:
    """Return the type of the file system at `path`, from the text of /proc/self/mounts; empty when it isn't there."""
    found = ("", "")
    for line in mounts.splitlines():
        fields = line.split()
        point = fields[1].encode().decode("unicode_escape") if len(fields) > 2 else ""
        inside = path.is_relative_to(point) if point else False
        if inside and len(point) >= len(found[0]):
            found = (point, fields[2])
    return found[1]


def fix(code: int, *, uid: int, gid: int) -> str:
    """Return what mends a failure, as an instruction for a person."""
    if code in (errno.EACCES, errno.EPERM):
        return (
            f"chown {uid}:{gid} the directory on the volume, or set spec.securityContext.runAsUser to its owner; "
            "fsGroup has no effect on volumes that several nodes share"
        )
    return {
        errno.EROFS: "the volume is mounted read-only: mount it writable",
        errno.ENOSPC: "the volume is full: enlarge it or delete files",
        errno.EDQUOT: "the volume's quota is used up: enlarge it or delete files",
        errno.ETIMEDOUT: "the file server does not answer: look at it and at the node's mount",
        errno.ESTALE: "the file server has replaced the directory: restart the pods that mount it",
    }.get(code, "look at the volume and at its file server")


def _place(root: Path) -> Report:
    """Whose directory it is; empty when even that can't be read."""
    try:
        found = root.stat()
        kind = file_system(root, Path("/proc/self/mounts").read_text())
    except OSError:
        return {}
    place = {"owner": found.st_uid, "group": found.st_gid, "mode": f"{stat.S_IMODE(found.st_mode):04o}"}
    return place | ({"fsType": kind} if kind else {})


def _failure(root: Path, error: StepError) -> Report:
    uid, gid = os.getuid(), os.getgid()
    # A file server that does not answer would not answer here either.
    place = {} if error.code == errno.ETIMEDOUT else _place(root)
    return {
        "ok": False,
        "step": error.step,
        "errno": errno.errorcode.get(error.code, str(error.code)),
        "uid": uid,
        "gid": gid,
        **place,
        "fix": fix(error.code, uid=uid, gid=gid),
    }


def check(root: Path, *, seconds: float = STEP_SECONDS) -> Report:
    """Try what engines do on `root` and return the report. Each step may take `seconds`."""
    directory, lacks = root / f".epd-preflight-{secrets.token_hex(8)}", list[str]()
    try:
        for step in _steps(directory):
            print(f"{step.name} in {directory}", flush=True)
            try:
                run_step(step.name, step.action, seconds=seconds)
            except StepError as error:
                if not step.spare or error.code not in _UNSUPPORTED:
                    raise
                lacks.append(step.name)
    except StepError as error:
        if error.code != errno.ETIMEDOUT:
            with suppress(StepError):
                run_step("rmdir", lambda: shutil.rmtree(directory, ignore_errors=True), seconds=seconds)
        return _failure(root, error)
    return {"ok": True, "uid": os.getuid(), "gid": os.getgid(), "lacks": lacks, **_place(root)}


def main(argv: Sequence[str] | None = None, *, termination_log: Path = TERMINATION_LOG) -> int:
    """Check the directory given and return the exit status: 0 when engines can work on it."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if len(arguments) != 1:
        print("usage: python -m epd.preflight ROOT", file=sys.stderr)
        return 2
    report = check(Path(arguments[0]))
    text = json.dumps(report)
    print(text, flush=True)
    try:
        termination_log.write_text(text)
    except OSError as error:
        print(f"{termination_log}: {error.strerror}", file=sys.stderr)
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    # A thread that hangs in the kernel would hold up an ordinary exit.
    status = main()
    sys.stdout.flush()
    os._exit(status)
