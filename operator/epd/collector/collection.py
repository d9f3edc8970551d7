"""One pass over one root: look, ask, decide, act, and say what was done. Orchestrates; decides nothing by itself."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from epd.api.names import Reason
from epd.collector import outcome, owner
from epd.collector.clock import ServerClock
from epd.collector.files import Files, KernelFiles
from epd.collector.house import House, open_housekeeping, open_parts, open_root
from epd.collector.inputs import Ask, Claim, Policy
from epd.collector.ledger import Ledger
from epd.collector.pace import Pace
from epd.collector.records import Records
from epd.collector.relief import volume
from epd.collector.result import PassResult
from epd.collector.round import Round
from epd.collector.survey import Survey

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
        self._ask = ask
        self._files = files or KernelFiles()
        self._clock = clock
        self._nonce = nonce
        self._stopping = stopping
        self._pace = Pace(rate, clock=clock, sleep=sleep, stopping=stopping)
        self._server = ServerClock(name, clock)
        self._records = Records()
        self._survey: Survey | None = None
        self._more = False

    def run(self, claim: Claim, policy: Policy) -> PassResult:
        """Make one pass. Raises nothing of the file system: what fails is counted, and tried again by the next pass."""
        ledger = Ledger()
        try:
            with open_root(self._files, self._root) as root:
                return self._collect(root, claim, policy, ledger)
        except OSError as error:
            ledger.error("open", error)
            ledger.trouble(Reason.COLLECTION_FAILED, f"the root cannot be worked on: {error}")
            return outcome.refused(ledger)

    def _collect(self, root: int, claim: Claim, policy: Policy, ledger: Ledger) -> PassResult:
        writes = policy.enabled and not policy.dry_run
        with ExitStack() as stack:
            try:
                house = stack.enter_context(open_housekeeping(self._files, root, make=writes))
            except FileNotFoundError:
                # Nothing was ever written here, and this pass may not begin.
                return PassResult(owned=True)
            found, why = owner.settle(
                self._files,
                house.housekeeping,
                claim,
                nonce=self._nonce,
                now=self._files.fstat(house.housekeeping).st_mtime,
                dry_run=not writes,
            )
            if found is None:
                ledger.trouble(Reason.ROOT_OWNED_BY_ANOTHER_CLAIM, f"{why}; nothing is done here")
                return outcome.refused(ledger, volume(self._files, house))
            open_parts(self._files, house, stack, ledger, make=writes)
            return self._round(house, found, policy, ledger)

    def _round(self, house: House, found: owner.Owner, policy: Policy, ledger: Ledger) -> PassResult:
        round_ = Round(
            files=self._files,
            house=house,
            owner=found,
            policy=policy,
            ledger=ledger,
            server=self._server,
            ask=self._ask,
            clock=self._clock,
            nonce=self._nonce,
            stopping=self._stopping,
            pace=self._pace,
            records=self._records,
            survey=self._survey,
            resumes=self._more,
        )
        round_.run()
        self._survey, self._more = round_.survey, round_.more
        if self._survey is not None and not self._survey.complete:
            self._survey = None
        return outcome.told(round_)
