"""A claim's store with the threads that may hang with it, as one half of the connector has them. No I/O itself.

Whoever uses it gets the store's answers from `calls`, asks `health` before, and is rid of all within seconds.
"""

from __future__ import annotations

import os
import secrets
from typing import Final

from .probe import Health, Pool, progressed
from .seam import Files
from .settings import Settings
from .store import Store

_JOIN_SECONDS: Final = 2.0
"""For threads to end in all; one that hangs with the volume ends with the process."""


class Access:
    """Store, calls to it, and whether it answers. Starts no thread before the first call."""

    def __init__(self, settings: Settings, files: Files, *, name: str, threads: int) -> None:
        """`name` and `threads` are those of the pool for calls."""
        self.store = Store(
            settings.root,
            settings.version,
            stamp_seconds=settings.stamp_seconds,
            pod=os.environ.get("EPD_POD_UID") or secrets.token_hex(8),
            files=files,
            progressed=progressed,
        )
        self._pools: list[Pool] = []
        self.calls = self.pool(name, threads)
        self.health = Health(
            self.calls,
            # Under a name never asked for before, which no client's cache can answer.
            lambda: self.store.holds(secrets.token_hex(16)),
            deadline=settings.probe_timeout_seconds,
        )

    def pool(self, name: str, threads: int) -> Pool:
        """Return threads for other calls, which end with the rest."""
        pool = Pool(name, threads)
        self._pools.append(pool)
        return pool

    def close(self) -> None:
        """Remove this engine's pins, if the store answers, and end all threads."""
        self.health.close(_JOIN_SECONDS)
        if not self.health.suspect:
            closing = self.pool("epd-ec-close", 1)
            closing.submit(self.store.close).wait(_JOIN_SECONDS)
        for pool in self._pools:
            pool.close(_JOIN_SECONDS / len(self._pools))
