"""The check that runs in the preflight Job: can this user work on the encoder cache's volume as engines do?

Run as `python -m epd.preflight ROOT` under the engines' uid. Standard library only. Leaves nothing behind, touches
nothing that it did not make, and says in one JSON object what failed and what mends it.
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
from pathlib import Path
from typing import Any, Final

TERMINATION_LOG: Final = Path("/dev/termination-log")
STEP_SECONDS: Final = 60
"""A hard NFS mount waits for ever for its server; one file operation that takes a minute is as good as none."""
_CONTENT: Final = b"epd-operator preflight\n"

_NO_LINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES}
"""What file systems without hard links answer. Reported, not a failure: vLLM's connectors need none."""

Report = dict[str, Any]
Step = tuple[str, Callable[[], object]]


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


def _steps(directory: Path) -> Iterator[Step]:
    first, second, link = directory / "first", directory / "second", directory / "link"
    yield "mkdir", lambda: directory.mkdir(mode=0o700)
    yield "create", lambda: _create(first)
    yield "link", lambda: os.link(first, link)
    yield "rename", lambda: first.rename(second)
    yield "read", lambda: _read(second)
    yield "unlink", lambda: second.unlink()
    yield "rmdir", lambda: shutil.rmtree(directory)


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
    directory, hard_links = root / f".epd-preflight-{secrets.token_hex(8)}", True
    try:
        for name, action in _steps(directory):
            print(f"{name} in {directory}", flush=True)
            try:
                run_step(name, action, seconds=seconds)
            except StepError as error:
                if name != "link" or error.code not in _NO_LINKS:
                    raise
                hard_links = False
    except StepError as error:
        if error.code != errno.ETIMEDOUT:
            with suppress(StepError):
                run_step("rmdir", lambda: shutil.rmtree(directory, ignore_errors=True), seconds=seconds)
        return _failure(root, error)
    return {"ok": True, "uid": os.getuid(), "gid": os.getgid(), "hardLinks": hard_links, **_place(root)}


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
