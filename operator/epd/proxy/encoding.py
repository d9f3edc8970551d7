"""Gets the media items of a request encoded: one primer per encoder, shared with other requests, one retry elsewhere.

Never decides what becomes of a request whose items could not be encoded (`exchange.py` does).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from epd.api.names import Role
from epd.proxy.media import MediaItem
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Member, Members
from epd.proxy.requests import CHAT_PATH, ParsedRequest, primer_body
from epd.proxy.rewrite import Reported, read_report
from epd.proxy.routing import InFlight, choose_encoder
from epd.proxy.transport import Call, Cause, Transport, TransportError

NO_ENCODER = "no-encoder"
"""Reason of a failure: no encoder of the pairing is in rotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """Items were encoded by `encoder`. `reported` has what it said of each, by the item's key."""

    encoder: str
    reported: Mapping[str, Reported]


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


@dataclass(slots=True, eq=False)
class _Flight:
    """One primer on its way and the number of requests that wait for it."""

    keys: tuple[str, ...]
    task: asyncio.Task[Encoded | EncodeFailure]
    waiters: int = 0


class Encoding:
    """Primers in flight, shared by equal items. `attempt_seconds` bounds one attempt on one encoder."""

    def __init__(
        self, *, transport: Transport, members: Members, load: InFlight, metrics: Metrics, attempt_seconds: float
    ) -> None:
        self._transport = transport
        self._members = members
        self._load = load
        self._metrics = metrics
        self._attempt_seconds = attempt_seconds
        self._flights: dict[str, _Flight] = {}

    async def encode(self, order: EncodeOrder) -> list[Encoded | EncodeFailure]:
        """Encode all items; what became of them, in no order that means anything.

        A cancelled call leaves primers alone that other requests wait for, and breaks off the rest.
        """
        items = {self._key(order, item): item for item in order.request.items}
        joined = {key: self._flights[key] for key in items if key in self._flights}
        mine = {key: item for key, item in items.items() if key not in joined}
        results = await self._run(order, mine, {items[key].key: flight for key, flight in joined.items()})
        # another request's primer may have failed for another item's sake, so its failure is not ours
        unmet = {key: items[key] for key, flight in joined.items() if isinstance(flight.task.result(), EncodeFailure)}
        self._metrics.encoded("coalesced", len(joined) - len(unmet))
        return results + await self._run(order, unmet, {}) if unmet else results

    def _key(self, order: EncodeOrder, item: MediaItem) -> str:
        authorization = order.headers.get("authorization", "")
        return f"{order.pairing}/{order.request.work_key(item, authorization=authorization)}"

    async def _run(
        self, order: EncodeOrder, items: Mapping[str, MediaItem], joined: Mapping[str, _Flight]
    ) -> list[Encoded | EncodeFailure]:
        """Encode `items` by primers of our own, and wait for `joined` (by item), whose failures are left out."""
        encoders = self._encoders(order)
        unserved = bool(items) and not encoders
        if unserved:
            self._metrics.encoded("failed", len(items))
        started = [] if unserved else self._start(order, items, encoders)
        await self._wait([*started, *set(joined.values())])
        results = [flight.task.result() for flight in started]
        for key, flight in joined.items():
            result = flight.task.result()
            if isinstance(result, Encoded):
                # another request's items are none of this one's business
                results.append(Encoded(encoder=result.encoder, reported={key: result.reported[key]}))
        return [*results, EncodeFailure(reason=NO_ENCODER)] if unserved else results

    def _encoders(self, order: EncodeOrder) -> list[Member]:
        return [member for member in self._members.ready(Role.ENCODE) if member.pairing == order.pairing]

    def _start(self, order: EncodeOrder, items: Mapping[str, MediaItem], encoders: Sequence[Member]) -> list[_Flight]:
        """Begin primers: images together per encoder, other media one by one (as vLLM's own proxy batches)."""
        groups: dict[tuple[str, str], tuple[Member, dict[str, MediaItem]]] = {}
        for key, item in items.items():
            encoder = choose_encoder(item.key, encoders, self._load)
            # counted at once, so that the next item sees it
            self._load.begin(encoder.name)
            _, group = groups.setdefault((encoder.name, "" if item.kind == "image" else key), (encoder, {}))
            group[key] = item
        return [self._launch(order, group, encoder, child) for child, (encoder, group) in enumerate(groups.values())]

    def _launch(self, order: EncodeOrder, group: Mapping[str, MediaItem], encoder: Member, child: int) -> _Flight:
        held = [encoder.name]
        task = asyncio.create_task(self._prime(order, group, encoder, child, held))
        flight = _Flight(tuple(group), task)
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
        self, order: EncodeOrder, group: Mapping[str, MediaItem], encoder: Member, child: int, held: list[str]
    ) -> Encoded | EncodeFailure:
        """Try `encoder`, then one other. `held[0]` is the encoder whose load the items count for."""
        call_id = f"{order.request_id}-e{child}"
        result, cause = await self._attempt(order, group, encoder, call_id)
        if isinstance(result, Encoded):
            self._metrics.encoded("encoded", len(group))
            return result
        others = [member for member in self._encoders(order) if member.name != encoder.name]
        if others:
            second = choose_encoder(next(iter(group.values())).key, others, self._load)
            self._metrics.retried(Role.ENCODE, cause)
            self._load.end(held[0], len(group))
            held[0] = second.name
            self._load.begin(second.name, len(group))
            result, _ = await self._attempt(order, group, second, f"{call_id}-r")
        self._metrics.encoded("retried" if isinstance(result, Encoded) else "failed", len(group))
        return result

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
        try:
            async with asyncio.timeout(self._attempt_seconds):
                answer = await self._transport.send(call)
                try:
                    body = await answer.read()
                finally:
                    answer.close()
        except TransportError as error:
            return EncodeFailure(reason=str(error.cause)), error.cause
        except TimeoutError:
            return EncodeFailure(reason=str(Cause.TIMEOUT)), Cause.TIMEOUT
        if answer.status != 200:
            reason = str(Cause.STATUS)
            failure = EncodeFailure(reason=reason, status=answer.status, headers=answer.headers, body=body)
            return failure, Cause.STATUS
        self._metrics.encode_took(time.monotonic() - begun)
        reported = dict(zip((item.key for item in group.values()), read_report(body, len(group)), strict=True))
        return Encoded(encoder=encoder.name, reported=reported), Cause.STATUS
