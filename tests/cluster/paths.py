"""Where the harness keeps things: caches that survive between runs, and the state of what runs now.

Names only; nothing here writes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
HARNESS = Path(__file__).resolve().parent
RUN = Path("/run/epd-cluster")
"""Sockets of the native node. Their paths must stay under 108 bytes (unix(7)), which a clone's own path may not."""
KUBELET_SOCKET = "cluster/kubelet/pod-resources/1234567890/kubelet.sock"
"""The longest path of a socket below `state()`; kubelet's root can't be told apart from the rest."""
SOCKET_PATH_LIMIT = 107
"""unix(7): sun_path has 108 bytes with the final zero."""


def cache() -> Path:
    """Expensive artifacts, each under a name with the hash of what it is made from. Variable `EPD_CACHE`."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "epd-operator"
    return Path(os.environ.get("EPD_CACHE") or default)


def state() -> Path:
    """The running node: disks, keys, logs, pids. Variable `EPD_STATE`; else in the clone, if its path is short."""
    if given := os.environ.get("EPD_STATE"):
        return Path(given).resolve()
    inside = REPO / ".cache"
    if len(str(inside / KUBELET_SOCKET)) <= SOCKET_PATH_LIMIT:
        return inside
    return Path("/var/tmp") / f"epd-operator-{hashlib.sha256(str(REPO).encode()).hexdigest()[:12]}"


def node() -> Path:
    """State of the native node."""
    return state() / "cluster"


def control_plane() -> Path:
    """State of the stand-alone control plane."""
    return state() / "control-plane"


def key(files: Iterable[Path], *more: str) -> str:
    """12 hex digits over the content of `files` (folders: everything in them but byte code) and the words `more`."""
    digest = hashlib.sha256()
    for file in files:
        members = sorted(m for m in file.rglob("*") if m.is_file()) if file.is_dir() else [file]
        for member in members:
            if "__pycache__" not in member.parts:
                digest.update(f"{member.relative_to(file.parent)}\0".encode() + member.read_bytes() + b"\0")
    for word in more:
        digest.update(word.encode() + b"\0")
    return digest.hexdigest()[:12]


def tool(name: str) -> str:
    """A command of the project's virtual environment, else of PATH.

    Raises FileNotFoundError: the command is in neither.
    """
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name}: not in {beside.parent} and not on PATH")
    return found
