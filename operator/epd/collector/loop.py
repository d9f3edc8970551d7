"""The collector's life: when a pass is made, and what is published of it. Knows nothing of files or of the API server.

Three threads, since a mount may hang for hours in any call: one makes passes, one looks at the volume's usage, and the
main one only waits. What they publish is replaced as a whole, so the port's threads read it without a lock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from epd.collector.asking import Brief
from epd.collector.inputs import Claim, Liveness, Policy
from epd.collector.policy import InForce
from epd.collector.report import View
from epd.collector.result import PassResult
from epd.collector.seen import Root
from epd.collector.tally import Tally

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 5.0
"""Between two looks at the usage: half of the 10 s in which the first byte is to be freed after a crossing."""
INTERVAL_SECONDS: Final = 60.0
"""Between two passes: dead versions wait for their grace anyway, and each pass asks for some ten lists."""
STOP_SECONDS: Final = 20.0
"""For a pass to end after SIGTERM: within the pod's 30 s, also with what the kubelet takes."""
STUCK_SECONDS: Final = 60.0
"""Without a tick of the main thread, which does nothing but wait: twelve of its rounds."""
QUIET_SECONDS: Final = 300.0
"""Without a sign of life from a pass: more than all lists of one answer may take (`apiserver.LIST_SECONDS`), so it is
the volume that does not answer."""
LOST_SECONDS: Final = 3600.0
"""Without a sign of life from a pass: a defect of ours that only a restart ends, or a file server that is down, which a
restart an hour does not harm."""


class Asks(Protocol):
    """The part of `Asker` that is used."""

    @property
    def last(self) -> Liveness | None:
        """The last answer; None before the first."""

    @property
    def last_valid(self) -> float | None:
        """When the last answer that may be acted on was taken."""

    def begin(self) -> Brief:
        """Ask for what a pass is given."""


class Collects(Protocol):
    """The part of `Collection` that is used."""

    def run(self, claim: Claim, policy: Policy) -> PassResult:
        """Make one pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """One look at the volume. `share` is of bytes or inodes, whichever is more, from 0 to 1."""

    share: float = 0.0
    at: float = 0.0
    high: bool = False


class Loop:
    """Makes passes: the first at once, then one each interval, sooner when usage crosses the high watermark.

    Args:
        root: For what is published.
        asks: Gives each pass its claim and policy.
        collects: Makes the passes.
        usage: Returns the volume's share in use, 0 to 1; raises OSError. May hang.
        interval: Seconds between two passes.
        poll: Seconds between two looks at the usage.
        clock: Monotonic seconds.
        wall: Seconds since the epoch.
    """

    def __init__(
        self,
        *,
        root: Root,
        asks: Asks,
        collects: Collects,
        usage: Callable[[], float],
        interval: float = INTERVAL_SECONDS,
        poll: float = POLL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._root = root
        self._asks = asks
        self._collects = collects
        self._usage = usage
        self._interval = interval
        self._poll = poll
        self._clock = clock
        self._wall = wall
        self._stop = threading.Event()
        self._due = threading.Event()
        self._brief = Brief(claim=None, in_force=InForce(), problem="no pass has begun yet")
        self._tally = Tally()
        self._failure = ""
        self._began: float | None = None
        self._alive = clock()
        self._ticked = clock()
        self._looked = Usage(at=clock())
        self._over_high = 0.0
        self._unmoved = 0
        self._seen_below = False
        self._passes = threading.Thread(target=self._make_passes, name="passes", daemon=True)
        self._looks = threading.Thread(target=self._look_at_usage, name="usage", daemon=True)

    def run(self) -> bool:
        """Work until `stop`; return whether the last pass came to its end within `STOP_SECONDS`."""
        self._passes.start()
        self._looks.start()
        while not self._stop.wait(self._poll):
            self._ticked = self._clock()
        log.info("stopping: the pass under way ends at its next batch")
        self._passes.join(STOP_SECONDS)
        return not self._passes.is_alive()

    def stop(self) -> None:
        """End; may be called from a signal handler."""
        self._stop.set()
        self._due.set()

    def stopping(self) -> bool:
        """For `Collection`, which asks between batches: each question is a sign of life."""
        self._alive = self._clock()
        return self._stop.is_set()

    def view(self) -> View:
        """What is known now."""
        brief, now = self._brief, self._clock()
        return View(
            root=self._root,
            now=now,
            tally=self._tally,
            in_force=brief.in_force,
            liveness=self._asks.last,
            last_valid=self._asks.last_valid,
            claim_missing=brief.claim is None and not brief.problem,
            failure=self._failure,
            silent=self._silent(now),
        )

    @property
    def running(self) -> float | None:
        """Seconds since the pass under way began; None between passes."""
        began = self._began
        return None if began is None else self._clock() - began

    @property
    def over_high(self) -> float:
        """Seconds that the usage was seen above the high watermark."""
        return self._over_high

    def unhealthy(self) -> str:
        """Return why a restart would help; empty if it would not."""
        now = self._clock()
        if now - self._ticked > STUCK_SECONDS + self._poll:
            return f"the main thread has not moved for {now - self._ticked:.0f} s"
        if self._passes.ident is not None and not self._passes.is_alive() and not self._stop.is_set():
            return "the thread that makes passes has ended"
        if self._began is not None and now - self._alive > LOST_SECONDS:
            return f"the pass under way has shown no sign of life for {now - self._alive:.0f} s"
        return ""

    def unready(self) -> str:
        """Return why nobody should ask; empty otherwise. A hanging mount is no reason: `/status` says so."""
        return "stopping" if self._stop.is_set() else ""

    def _make_passes(self) -> None:
        while not self._stop.is_set():
            self._due.clear()
            self._seen_below = False
            self._began = self._alive = self._clock()
            try:
                more = self._make_pass()
                self._failure = ""
            except Exception as error:  # whatever it is, the next pass may do better, and people are told
                log.exception("the pass broke off")
                self._failure = f"{type(error).__name__}: {error}"
                self._tally, more = self._tally.failed(), False
            length, self._began = self._clock() - self._began, None
            if not more:
                # a scan of very many entries may take half of the time, not all of it
                self._due.wait(max(self._interval, length))

    def _make_pass(self) -> bool:
        self._brief = brief = self._asks.begin()
        if brief.claim is None:
            return False
        policy = brief.in_force.policy
        result = self._collects.run(brief.claim, policy)
        self._tally = self._tally.after(result, dry_run=policy.dry_run, now=self._wall())
        _tell(result)
        self._seen_below = result.owned and not result.over_watermark
        moved = result.removed_entries or result.removed_versions or result.scanned_entries
        self._unmoved = 0 if moved else self._unmoved + 1
        # one that moved nothing may have learned that it must scan; a second one would spin
        return result.more and self._unmoved < 2

    def _look_at_usage(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(self._poll)

    def look(self) -> None:
        """Look at the usage once; ask for a pass where it has crossed the high watermark since the last look.

        Only the crossing counts: a pass that could not free enough has said so, and is repeated by the interval. Where
        one freed enough and writers filled the volume again before this look, that was a crossing too.
        """
        try:
            share = self._usage()
        except OSError as error:
            log.warning("the volume's usage can't be read: %s", error)
            return
        seen_below, self._seen_below = self._seen_below, False
        before, now = self._looked, self._clock()
        high = share * 100 > self._brief.in_force.policy.high_percent
        if high and before.high:
            self._over_high += now - before.at
        if high and (seen_below or not before.high):
            log.info("usage is %.1f %%, above the high watermark", share * 100)
            self._due.set()
        self._looked = Usage(share=share, at=now, high=high)

    def _silent(self, now: float) -> float | None:
        """Since when the volume has not answered; a look that is merely late is not told."""
        if now - self._looked.at > 2 * self._poll:
            return self._looked.at
        return self._alive if self._began is not None and now - self._alive > QUIET_SECONDS else None


def _tell(result: PassResult) -> None:
    if result.condemned or result.absolved or result.renamed or result.removed_entries or result.removed_versions:
        log.info(
            "condemned %s, absolved %s, out of use %s; removed %d entries, %d versions, %d bytes",
            ", ".join(result.condemned) or "none",
            ", ".join(result.absolved) or "none",
            ", ".join(result.renamed) or "none",
            result.removed_entries,
            result.removed_versions,
            result.freed_bytes,
        )
    for trouble in result.troubles:
        log.warning("%s: %s", trouble.reason.value, trouble.message)
