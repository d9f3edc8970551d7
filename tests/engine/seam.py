"""`os` as the connector has it, in a test's hands: its calls hang or fail."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any


class Files:
    """`os`, but calls below `root` hang while `hang` is set, or fail with `error`; says which threads came."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.open_again = threading.Event()
        self.hang = False
        self.error: dict[str, int] = {}
        self.threads: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        function = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self.threads.add(threading.current_thread().name)
            if self.hang:
                self.open_again.wait()
            if name in self.error:
                raise OSError(self.error[name], os.strerror(self.error[name]))
            return function(*arguments, **options)

        return call
