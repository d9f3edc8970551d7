"""One pass over one root: look, ask, decide, act, and say what was done. Orchestrates; decides nothing by itself."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

from epd.collector.files import Files, KernelFiles
from epd.collector.inputs import Ask, Claim, Policy
from epd.collector.result import PassResult

DELETIONS_PER_SECOND: Final = 5000.0
"""An unlink on ext4 costs about 40 us of CPU, journal included: a fifth of one core, the rest is the engines'."""


class Collection:
    """Collects one root, pass by pass. Between passes it holds no file open; its memory only saves work.

    Args:
        root: Path of the root, where the claim is mounted.
        name: Of this collector's probe file; unique among those that run at once, such as the pod's uid.
        ask: Asks which versions live; called again right before each batch of condemnations and each rename.
        stopping: Whether to end early; looked at between batches.
        rate: Deletions per second, at most.
    """

    def __init__(
        self,
        root: str,
        *,
        name: str,
        ask: Ask,
        files: Files | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        nonce: Callable[[], str] = lambda: secrets.token_hex(8),
        stopping: Callable[[], bool] = lambda: False,
        rate: float = DELETIONS_PER_SECOND,
    ) -> None:
        self._root = root
        self._name = name
        self._ask = ask
        self._files = files or KernelFiles()
        self._clock = clock
        self._sleep = sleep
        self._nonce = nonce
        self._stopping = stopping
        self._rate = rate

    def run(self, claim: Claim, policy: Policy) -> PassResult:
        """Make one pass. Raises nothing of the file system: what fails is counted, and tried again by the next pass."""
        raise NotImplementedError
