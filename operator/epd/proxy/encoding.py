"""Gets the media items of a request encoded: one primer per encoder, shared with other requests, one retry elsewhere.

Items that are known to be in the store already go without. Never decides what becomes of a request whose items could
not be encoded (`exchange.py` does).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from epd.api.names import Role
from epd.proxy.connectors import Sharing, read_announcement
from epd.proxy.hints import Hints, hint_keys
from epd.proxy.media import MediaItem
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Member
from epd.proxy.record import Trail
from epd.proxy.requests import CHAT_PATH, ParsedRequest, primer_body
from epd.proxy.rewrite import Reported, read_report
from epd.proxy.rotation import Rotation
from epd.proxy.transport import Call, Cause, Transport, TransportError

NO_ENCODER = "no-encoder"
"""Reason of a failure: no encoder of the pairing is in rotation."""

PRIMERS_AT_ONCE: Final = 16
"""Primers of one request that are on their way. Sounds and videos have one each, so a request with thousands of them
would open as many connections and hold as many copies of its options (64 KB each). An encoder takes
`max_num_batched_tokens` embeddings a step (vLLM v1/core/encoder_cache_manager.py), a few items: these keep several
encoders busy, and what is more would wait there instead of here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """Items were encoded by `encoder`. `reported` has what it said of each, by the item's key.

    `announced` has what it said for the engine that reads them, where the connector needs that.
    """

    encoder: str
    reported: Mapping[str, Reported]
    announced: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeFailure:
    """Items could not be encoded. `status`, `headers` and `body` are the last encoder's answer, if there was one."""

    reason: str
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeOrder:
    """What to encode, for whom, and by encoders of which pairing."""

    request: ParsedRequest
    pairing: str
    request_id: str
    headers: Mapping[str, str]
    trail: Trail = field(default_factory=Trail)


@dataclass(slots=True, eq=False)
class _Flight:
    """One primer on its way and the number of requests that wait for it."""

    keys: tuple[str, ...]
    task: asyncio.Task[Encoded | EncodeFailure]
    waiters: int = 0


@dataclass(slots=True, eq=False)
class _Work:
    """What one order comes to: the hint keys of its items, the turns of its primers, and why the rest is not sent."""

    order: EncodeOrder
    hint_keys: Mapping[str, str]
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PRIMERS_AT_ONCE))
    unanswered: EncodeFailure | None = None


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
        self._transport = transport
        self._rotation = rotation
        self._load = rotation.load
        self._health = rotation.health
        self._metrics = metrics
        self._attempt_seconds = attempt_seconds
        self._sharing = sharing
        self._hints = hints
        self._hinting = sharing.hinted and hints.seconds > 0
        self._flights: dict[str, _Flight] = {}

    async def encode(self, order: EncodeOrder) -> list[Encoded | EncodeFailure]:
        """Encode all items; what became of them, in no order that means anything.

        A cancelled call leaves primers alone that other requests wait for, and breaks off the rest.
        """
        work = _Work(order, hint_keys(order.pairing, order.request) if self._hinting else {})
        known = self._known(work)
        items = {self._key(order, item): item for item in order.request.items if item.key not in known}
        self._metrics.encoded("hinted", len(known))
        joined = {key: self._flights[key] for key in items if key in self._flights}
        mine = {key: item for key, item in items.items() if key not in joined}
        results: list[Encoded | EncodeFailure] = [*known.values()]
        results += await self._run(work, mine, {items[key].key: flight for key, flight in joined.items()})
        # another request's primer may have failed for another item's sake, so its failure is not ours
        unmet = {key: items[key] for key, flight in joined.items() if isinstance(flight.task.result(), EncodeFailure)}
        self._metrics.encoded("coalesced", len(joined) - len(unmet))
        return results + await self._run(work, unmet, {}) if unmet else results

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
        for item, reported in encoded.reported.items():
            # without an identifier nothing was published
            if item in work.hint_keys and reported.identifier:
                self._hints.note(work.hint_keys[item], encoder=encoded.encoder, reported=reported)

    def _key(self, order: EncodeOrder, item: MediaItem) -> str:
        authorization = order.headers.get("authorization", "")
        return f"{order.pairing}/{order.request.work_key(item, authorization=authorization)}"

    async def _run(
        self, work: _Work, items: Mapping[str, MediaItem], joined: Mapping[str, _Flight]
    ) -> list[Encoded | EncodeFailure]:
        """Encode `items` by primers of our own, and wait for `joined` (by item), whose failures are left out."""
        encoders = self._rotation.encoders(work.order.pairing)
        unserved = bool(items) and not encoders
        if unserved:
            self._metrics.encoded("failed", len(items))
        started = [] if unserved else self._start(work, items, encoders)
        await self._wait([*started, *set(joined.values())])
        results = [flight.task.result() for flight in started]
        for key, flight in joined.items():
            result = flight.task.result()
            if isinstance(result, Encoded):
                # another request's items are none of this one's business
                results.append(Encoded(encoder=result.encoder, reported={key: result.reported[key]}))
        return [*results, EncodeFailure(reason=NO_ENCODER)] if unserved else results

    def _start(self, work: _Work, items: Mapping[str, MediaItem], encoders: Sequence[Member]) -> list[_Flight]:
        """Begin primers: images together per encoder, other media one by one (as vLLM's own proxy batches)."""
        groups: dict[tuple[str, str], tuple[Member, dict[str, MediaItem]]] = {}
        for key, item in items.items():
            encoder = self._rotation.encoder(item.key, encoders)
            # counted at once, so that the next item sees it
            self._load.begin(encoder.name)
            _, group = groups.setdefault((encoder.name, "" if item.kind == "image" else key), (encoder, {}))
            group[key] = item
        return [self._launch(work, group, encoder, child) for child, (encoder, group) in enumerate(groups.values())]

    def _launch(self, work: _Work, group: Mapping[str, MediaItem], encoder: Member, child: int) -> _Flight:
        held = [encoder.name]
        task = asyncio.create_task(self._prime(work, group, encoder, child, held))
        flight = _Flight(tuple(group), task)
        if self._sharing.coalesced:
            for key in flight.keys:
                self._flights[key] = flight

        def landed(_: asyncio.Task[Encoded | EncodeFailure]) -> None:
            # in a callback, because a task that is cancelled before its first step runs no `finally`
            self._load.end(held[0], len(flight.keys))
            self._forget(flight)

        task.add_done_callback(landed)
        return flight

    async def _wait(self, flights: Sequence[_Flight]) -> None:
        if not flights:
            return
        for flight in flights:
            flight.waiters += 1
        try:
            await asyncio.wait({flight.task for flight in flights})
        finally:
            for flight in flights:
                flight.waiters -= 1
                if not flight.waiters and not flight.task.done():
                    self._forget(flight)
                    flight.task.cancel()

    def _forget(self, flight: _Flight) -> None:
        for key in flight.keys:
            if self._flights.get(key) is flight:
                del self._flights[key]

    async def _prime(
        self, work: _Work, group: Mapping[str, MediaItem], encoder: Member, child: int, held: list[str]
    ) -> Encoded | EncodeFailure:
        """Wait for a turn; try `encoder`, then one other. `held[0]` is the encoder whose load the items count for."""
        async with work.turns:
            if work.unanswered is not None:
                self._metrics.encoded("failed", len(group))
                return work.unanswered
            candidates = self._rotation.encoders(work.order.pairing)
            if candidates and encoder not in candidates:
                # it was put out or went while the others had their turns
                encoder = self._move(group, candidates, held)
            result, again = await self._try_two(work, group, encoder, f"{work.order.request_id}-e{child}", held)
        if isinstance(result, Encoded):
            self._metrics.encoded("retried" if again else "encoded", len(group))
            self._note(work, result)
        else:
            self._metrics.encoded("failed", len(group))
            if result.status is None:
                # the request is not served by encoders any more, and where none answers each turn takes its whole time
                work.unanswered = result
        return result

    async def _try_two(
        self, work: _Work, group: Mapping[str, MediaItem], encoder: Member, call_id: str, held: list[str]
    ) -> tuple[Encoded | EncodeFailure, bool]:
        """The result, and whether it is a second encoder's."""
        result, cause = await self._attempt(work.order, group, encoder, call_id)
        others = self._rotation.encoders(work.order.pairing, excluded=encoder.name)
        if isinstance(result, Encoded) or not others:
            return result, False
        self._metrics.retried(Role.ENCODE, cause)
        work.order.trail.retried(Role.ENCODE, cause)
        result, _ = await self._attempt(work.order, group, self._move(group, others, held), f"{call_id}-r")
        return result, True

    def _move(self, group: Mapping[str, MediaItem], encoders: Sequence[Member], held: list[str]) -> Member:
        """Choose another encoder for items, and count them there."""
        encoder = self._rotation.encoder(next(iter(group.values())).key, encoders)
        self._load.end(held[0], len(group))
        held[0] = encoder.name
        self._load.begin(encoder.name, len(group))
        return encoder

    async def _attempt(
        self, order: EncodeOrder, group: Mapping[str, MediaItem], encoder: Member, call_id: str
    ) -> tuple[Encoded | EncodeFailure, Cause]:
        """One primer on one encoder; the cause means something only beside a failure."""
        call = Call(
            address=encoder.address,
            path=CHAT_PATH,
            headers={**order.headers, "content-type": "application/json", "x-request-id": call_id},
            body=primer_body(order.request, tuple(group.values())),
        )
        begun = time.monotonic()
        self._health.sent(encoder.name)
        try:
            async with asyncio.timeout(self._attempt_seconds):
                answer = await self._transport.send(call)
                try:
                    body = await answer.read()
                finally:
                    answer.close()
        except (TransportError, TimeoutError) as error:
            cause = error.cause if isinstance(error, TransportError) else Cause.TIMEOUT
            self._health.failed(encoder.name, cause)
            return EncodeFailure(reason=str(cause)), cause
        if answer.status >= 500:
            self._health.failed(encoder.name, Cause.STATUS)
        else:
            self._health.succeeded(encoder.name)
        if answer.status != 200:
            reason = str(Cause.STATUS)
            failure = EncodeFailure(reason=reason, status=answer.status, headers=answer.headers, body=body)
            return failure, Cause.STATUS
        self._metrics.encode_took(time.monotonic() - begun)
        reported = dict(zip((item.key for item in group.values()), read_report(body, len(group)), strict=True))
        announced = read_announcement(body) if self._sharing.announced else {}
        return Encoded(encoder=encoder.name, reported=reported, announced=announced), Cause.STATUS
