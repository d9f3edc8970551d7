"""Hands on a volume: what somebody does there who is no program of a history."""

from __future__ import annotations

import os

from epd.connector import layout
from histories.memory_fs import Files
from histories.memory_tree import Inode


class Hands(Files):
    """A shell with every right: no gate, no witness."""

    def put(self, path: str, data: bytes = b"x") -> Inode:
        """Make a file with `data`."""
        fd = self.open(path, os.O_CREAT | os.O_WRONLY, 0o660)
        try:
            self.write(fd, data)
            return self.inode_of(fd)
        finally:
            self.close(fd)

    def make(self, path: str) -> None:
        """Make directories as mkdir -p does."""
        parts = path.strip("/").split("/")
        for length in range(1, len(parts) + 1):
            try:
                self.mkdir("/" + "/".join(parts[:length]), layout.DIRECTORY_MODE)
            except FileExistsError:
                continue
