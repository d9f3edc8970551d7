"""A Secret as the kubelet mounts it, which changes all files at once (Kubernetes, AtomicWriter)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from itertools import count
from pathlib import Path


class Mount:
    """A mounted Secret; every `write` is an update by the kubelet."""

    def __init__(self, path: Path, files: Mapping[str, str]) -> None:
        self.path = path
        self._numbers = count()
        self.write(files)

    def write(self, files: Mapping[str, str]) -> None:
        link = self.path / "..data"
        old = self.path / os.readlink(link) if link.is_symlink() else None
        new = self.path / f"..2026_11_30_00_00_00.{next(self._numbers)}"
        new.mkdir(parents=True)
        for name, content in files.items():
            (new / name).write_text(content)
        temporary = self.path / "..data_tmp"
        temporary.symlink_to(new.name)
        temporary.rename(link)
        for name in files:
            if not (self.path / name).is_symlink():
                (self.path / name).symlink_to(Path("..data") / name)
        for path in self.path.iterdir():
            if not path.name.startswith("..") and path.name not in files:
                path.unlink()
        if old is not None:
            shutil.rmtree(old)
