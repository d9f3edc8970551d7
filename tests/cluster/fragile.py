"""A volume whose file server can be filled, made read-only, stopped and killed: bindfs over a tmpfs of this machine.

Only on the native node, whose volumes are folders of this machine. Undoes every mount and process it made.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster.steps import HarnessError, run

SIZE = 8 << 20
"""Bytes: some hundred entries of the tiny model, and filled in no time."""


@dataclass
class FragileVolume:
    """The tmpfs at `backing`, served by bindfs at `folder`."""

    backing: Path
    folder: Path
    server: subprocess.Popen[bytes]

    def fill(self) -> Path:
        """Leave no free byte; delete the file returned to end it."""
        ballast = self.backing / ".ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while file.write(b"\0" * 65536):
                    pass
            except OSError:
                pass
        return ballast

    def read_only(self, yes: bool) -> None:
        """Remount the tmpfs; its server then answers EROFS to every write."""
        run(["mount", "-o", f"remount,{'ro' if yes else 'rw'}", self.backing])

    @contextmanager
    def hung(self) -> Iterator[None]:
        """The server answers nothing: who asks it sleeps in the kernel."""
        self.server.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.server.send_signal(signal.SIGCONT)


@contextmanager
def fragile_volume(folder: Path, *, gid: int = 1000) -> Iterator[FragileVolume]:
    """Serve a tmpfs at the folder of a volume made by hand."""
    backing = folder.with_name(f"{folder.name}-backing")
    backing.mkdir()
    run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},uid=0,gid={gid},mode=2770", "tmpfs", backing])
    server = subprocess.Popen(["bindfs", "-f", backing, folder])
    try:
        _await_mount(folder, server)
        yield FragileVolume(backing, folder, server)
    finally:
        server.send_signal(signal.SIGCONT)
        server.terminate()
        server.wait(timeout=10)
        subprocess.run(["umount", "--lazy", folder], capture_output=True, check=False)
        run(["umount", backing])
        backing.rmdir()


def _await_mount(folder: Path, server: subprocess.Popen[bytes]) -> None:
    for _ in range(100):
        if os.path.ismount(folder):
            return
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise HarnessError(f"bindfs does not serve {folder}: exit status {server.poll()}")
