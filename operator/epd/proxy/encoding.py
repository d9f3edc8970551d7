"""Gets the media items of a request encoded: one primer per encoder, shared with other requests that want the same.

Items that are known to be in the store already go without. Never decides what becomes of a request whose items could
not be encoded (`exchange.py` does), and speaks to no encoder by itself (`primers.py` does).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from epd.proxy.connectors import Sharing
from epd.proxy.course import Course, Signal
from epd.proxy.hints import Hints, hint_keys
from epd.proxy.media import MediaItem
from epd.proxy.metrics import Metrics
from epd.proxy.parsed import ParsedRequest
from epd.proxy.pods import Member
from epd.proxy.primers import Encoded, EncodeFailure, EncodeOrder, Primer, Primers
from epd.proxy.rotation import Rotation
from epd.proxy.transport import Transport

NO_ENCODER = "no-encoder"
"""Reason of a failure: no encoder of the pairing is in rotation."""

PRIMERS_AT_ONCE: Final = 16
"""Primers of one request that are on their way. Sounds and videos have one each, so a request with thousands of them
would open as many connections and hold as many copies of its options (64 KB each). An encoder takes
`max_num_batched_tokens` embeddings a step (vLLM v1/core/encoder_cache_manager.py), a few items: these keep several
encoders busy, and what is more would wait there instead of here."""

Result = Encoded | EncodeFailure
_Key = tuple[str, ...]
_NO_HINTS: Final[Mapping[str, str]] = {}


class _Join:
    """Waits until a number of flights has landed."""

    __slots__ = ("_left", "over")

    def __init__(self, flights: int, loop: asyncio.AbstractEventLoop) -> None:
        self._left = flights
        self.over = Signal(loop)

    def landed(self) -> None:
        """One of them has."""
        self._left -= 1
        if not self._left and not self.over.done():
            self.over.set_result(None)


class _Flight:
    """A primer on its way, and who waits for it. Once it has landed it has a result, or an error that nobody foresaw.

    It has neither if all who waited left.
    """

    __slots__ = ("error", "joins", "keys", "landed", "primer", "result")

    def __init__(self, primer: Primer, keys: Sequence[_Key]) -> None:
        self.primer = primer
        self.keys = keys
        self.joins: list[_Join] = []
        self.landed = False
        self.result: Result | None = None
        self.error: BaseException | None = None


class _Work:
    """What one order comes to: the hint keys of its items, the turns of its primers, and why the rest is not sent."""

    __slots__ = ("hint_keys", "order", "turns", "unanswered")

    def __init__(self, order: EncodeOrder, hint_keys: Mapping[str, str]) -> None:
        self.order = order
        self.hint_keys = hint_keys
        self.turns: asyncio.Semaphore | None = None
        """None where all can be on their way at once."""
        self.unanswered: EncodeFailure | None = None


class Encoding:
    """Primers in flight, shared by equal items. `attempt_seconds` bounds one attempt on one encoder."""

    def __init__(
        self,
        *,
        transport: Transport,
        rotation: Rotation,
        metrics: Metrics,
        attempt_seconds: float,
        sharing: Sharing,
        hints: Hints,
    ) -> None:
        self._rotation = rotation
        self._load = rotation.load
        self._metrics = metrics
        self._coalesced = sharing.coalesced
        self._hints = hints
        self._hinting = sharing.hinted and hints.seconds > 0
        self._flights: dict[_Key, _Flight] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        """The one it works in, once it does: to ask which one runs is a system call before Python 3.12."""
        self._primers = Primers(
            transport=transport, rotation=rotation, metrics=metrics, attempt_seconds=attempt_seconds, sharing=sharing
        )

    async def encode(self, order: EncodeOrder) -> list[Result]:
        """Encode all items; what became of them, in no order that means anything.

        A cancelled call leaves primers alone that other requests wait for, and breaks off the rest.
        """
        work = _Work(order, hint_keys(order.pairing, order.request) if self._hinting else _NO_HINTS)
        known = self._known(work) if work.hint_keys else {}
        mine: dict[_Key, MediaItem] = {}
        joined: dict[_Key, tuple[MediaItem, _Flight]] = {}
        authorization = order.headers.get("authorization", "")
        for item in order.request.items:
            if item.key in known:
                continue
            key = (order.pairing, *order.request.work_key(item, authorization=authorization))
            flight = self._flights.get(key)
            if flight is None:
                mine[key] = item
            else:
                joined[key] = (item, flight)
        if known:
            self._metrics.encoded("hinted", len(known))
        results = await self._run(work, mine, [flight for _, flight in joined.values()] if joined else ())
        if known:
            results = [*known.values(), *results]
        if joined:
            results += await self._take_over(work, joined)
        return results

    def hinted(self, request: ParsedRequest, pairing: str) -> int:
        """How many items of `request` need no primer by encoders of `pairing`."""
        if not self._hinting:
            return 0
        return sum(self._hints.find(key) is not None for key in hint_keys(pairing, request).values())

    def forget(self, request: ParsedRequest, pairing: str) -> None:
        """The items of `request` were not where they should be: they get primers again."""
        if self._hinting:
            for key in hint_keys(pairing, request).values():
                self._hints.drop(key)

    def _known(self, work: _Work) -> dict[str, Encoded]:
        """Items that need no primer, by their keys."""
        hints = {item: hint for item, key in work.hint_keys.items() if (hint := self._hints.find(key))}
        return {item: Encoded(encoder=hint.encoder, reported={item: hint.reported}) for item, hint in hints.items()}

    def _note(self, work: _Work, encoded: Encoded) -> None:
        for item, key in work.hint_keys.items():
            reported = encoded.reported.get(item)
            # without an identifier nothing was published
            if reported is not None and reported.identifier:
                self._hints.note(key, encoder=encoded.encoder, reported=reported)

    async def _take_over(self, work: _Work, joined: Mapping[_Key, tuple[MediaItem, _Flight]]) -> list[Result]:
        """Take what other requests' primers, which have landed, gave for our items, and prime for what they did not."""
        results: list[Result] = []
        unmet: dict[_Key, MediaItem] = {}
        for key, (item, flight) in joined.items():
            if isinstance(flight.result, Encoded):
                # another request's items are none of this one's business
                reported = {item.key: flight.result.reported[item.key]}
                results.append(Encoded(encoder=flight.result.encoder, reported=reported))
            else:
                # it may have failed for another item's sake, so its failure is not ours
                unmet[key] = item
        self._metrics.encoded("coalesced", len(results))
        return results + await self._run(work, unmet, ()) if unmet else results

    async def _run(self, work: _Work, items: dict[_Key, MediaItem], joined: Collection[_Flight]) -> list[Result]:
        """Encode `items` by primers of our own, of which these are the results; and wait for those `joined`."""
        encoders = self._rotation.encoders(work.order.pairing) if items else ()
        started = self._start(work, items, encoders) if encoders else []
        await self._wait([*started, *dict.fromkeys(joined)] if joined else started)
        results = [_result(flight) for flight in started]
        if items and not encoders:
            self._metrics.encoded("failed", len(items))
            results.append(EncodeFailure(reason=NO_ENCODER))
        return results

    def _start(self, work: _Work, items: dict[_Key, MediaItem], encoders: Sequence[Member]) -> list[_Flight]:
        """Begin primers: images together per encoder, other media one by one (as vLLM's own proxy batches)."""
        groups: dict[tuple[str, str], tuple[Member, dict[_Key, MediaItem]]] = {}
        for key, item in items.items():
            encoder = self._rotation.encoder(item.key, encoders)
            # counted at once, so that the next item sees it
            self._load.begin(encoder.name)
            _, group = groups.setdefault((encoder.name, "" if item.kind == "image" else item.key), (encoder, {}))
            group[key] = item
        if len(groups) > PRIMERS_AT_ONCE:
            work.turns = work.turns or asyncio.Semaphore(PRIMERS_AT_ONCE)
        return [self._launch(work, group, encoder, child) for child, (encoder, group) in enumerate(groups.values())]

    def _launch(self, work: _Work, group: dict[_Key, MediaItem], encoder: Member, child: int) -> _Flight:
        primer = Primer(work.order, tuple(group.values()), encoder, f"{work.order.request_id}-e{child}")
        flight = _Flight(primer, tuple(group))
        if self._coalesced:
            for key in group:
                self._flights[key] = flight
        course = Course(self._prime(work, primer), partial(self._land, flight))
        primer.cancel = course.cancel
        course.begin()
        return flight

    async def _wait(self, flights: Sequence[_Flight]) -> None:
        left = [flight for flight in flights if not flight.landed]
        if not left:
            return
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        join = _Join(len(left), self._loop)
        for flight in left:
            flight.joins.append(join)
        try:
            await join.over
        except asyncio.CancelledError:
            for flight in left:
                if not flight.landed:
                    flight.joins.remove(join)
                    if not flight.joins:
                        self._forget(flight)
                        flight.primer.break_off()
            raise

    async def _prime(self, work: _Work, primer: Primer) -> Result:
        if work.turns is None:
            result = await self._primers.prime(primer)
        else:
            async with work.turns:
                result = await self._take_turn(work, primer)
        if work.hint_keys and isinstance(result, Encoded):
            self._note(work, result)
        return result

    async def _take_turn(self, work: _Work, primer: Primer) -> Result:
        """Prime as it makes sense now: much may have happened while others had their turns."""
        if work.unanswered is not None:
            self._metrics.encoded("failed", len(primer.items))
            return work.unanswered
        candidates = self._rotation.encoders(work.order.pairing)
        if candidates and primer.encoder not in candidates:
            self._primers.move(primer, candidates)
        result = await self._primers.prime(primer)
        if isinstance(result, EncodeFailure) and result.status is None:
            # the request is not served by encoders any more, and where none answers each turn takes its whole time
            work.unanswered = result
        return result

    def _land(self, flight: _Flight, result: Result | None, error: BaseException | None) -> None:
        """Nobody can join any more, and all who wait need no longer."""
        flight.landed, flight.result, flight.error = True, result, error
        flight.primer.landed()
        self._load.end(flight.primer.encoder.name, len(flight.primer.items))
        self._forget(flight)
        # who waits goes on within this very call
        for join in flight.joins:
            join.landed()

    def _forget(self, flight: _Flight) -> None:
        for key in flight.keys:
            if self._flights.get(key) is flight:
                del self._flights[key]


def _result(flight: _Flight) -> Result:
    if flight.result is None:
        raise flight.error or RuntimeError("a primer ended without a result")
    return flight.result
