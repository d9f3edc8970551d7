"""Has items encoded by one encoder, and by one other if the first fails: a chat request that ends before any token.

Chooses no first encoder and shares nothing with other requests (`encoding.py` does).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from epd.api.names import Role
from epd.proxy.connectors import Sharing, read_announcement
from epd.proxy.expiry import Expiry
from epd.proxy.fetching import Fetched, fetch
from epd.proxy.media import MediaItem
from epd.proxy.metrics import Metrics
from epd.proxy.parsed import ParsedRequest, primer_body
from epd.proxy.pods import Member
from epd.proxy.pushes import Push, push
from epd.proxy.record import Trail
from epd.proxy.requests import CHAT_PATH
from epd.proxy.rewrite import Reported, read_report
from epd.proxy.rotation import Rotation
from epd.proxy.transport import Call, Cause, Transport, TransportError

_NOTHING_SAID: Final[Mapping[str, Any]] = {}


# none of these is ever changed but a primer
@dataclass(slots=True, init=False)
class Encoded:
    """Items were encoded by `encoder`. `reported` has what it said of each, by the item's key.

    `announced` has what it said for the engine that reads them, where the connector needs that; `pushed` names what
    was pushed to that engine.
    """

    encoder: str
    reported: dict[str, Reported]
    announced: Mapping[str, Any]
    pushed: tuple[Mapping[str, str], ...]

    def __init__(
        self,
        *,
        encoder: str,
        reported: dict[str, Reported],
        announced: Mapping[str, Any] = _NOTHING_SAID,
        pushed: tuple[Mapping[str, str], ...] = (),
    ) -> None:
        self.encoder = encoder
        self.reported = reported
        self.announced = announced
        self.pushed = pushed


@dataclass(slots=True, kw_only=True)
class EncodeFailure:
    """Items could not be encoded. `status`, `headers` and `body` are the last encoder's answer, if there was one."""

    reason: str
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(slots=True, init=False)
class EncodeOrder:
    """What to encode, for whom, and by encoders of which pairing; and to whom to push it, if the connector does."""

    request: ParsedRequest
    pairing: str
    request_id: str
    headers: Mapping[str, str]
    trail: Trail
    consumer: str

    def __init__(
        self,
        *,
        request: ParsedRequest,
        pairing: str,
        request_id: str,
        headers: Mapping[str, str],
        trail: Trail,
        consumer: str = "",
    ) -> None:
        self.request = request
        self.pairing = pairing
        self.request_id = request_id
        self.headers = headers
        self.trail = trail
        self.consumer = consumer


def _nothing() -> None:
    """What cancels what is not on its way."""


class Primer:
    """Items for one call to `encoder`, for whose load they count from the moment it is chosen."""

    __slots__ = ("call_id", "cancel", "encoder", "items", "late", "order")

    def __init__(self, order: EncodeOrder, items: Sequence[MediaItem], encoder: Member, call_id: str) -> None:
        self.order = order
        self.items = items
        self.encoder = encoder
        self.call_id = call_id
        self.cancel: Callable[[], None] = _nothing
        """Breaks off what it waits for, while it is on its way."""
        self.late = False
        """Whether that is because an attempt took too long."""

    def landed(self) -> None:
        """It is on its way no more: without this, its media would live on with it in a cycle of references."""
        self.cancel = _nothing

    def break_off(self) -> None:
        """Nobody wants it any more."""
        self.late = False
        self.cancel()


class Primers:
    """Sends primers. `attempt_seconds` bounds one attempt on one encoder."""

    def __init__(
        self, *, transport: Transport, rotation: Rotation, metrics: Metrics, attempt_seconds: float, sharing: Sharing
    ) -> None:
        self._transport = transport
        self._rotation = rotation
        self._load = rotation.load
        self._health = rotation.health
        self._metrics = metrics
        self._announced = sharing.announced
        self._expiry = Expiry(attempt_seconds, _give_up)

    async def prime(self, primer: Primer) -> Encoded | EncodeFailure:
        """Try the primer's encoder, then one other."""
        how = "encoded"
        result = await self._attempt(primer, primer.call_id)
        if isinstance(result, EncodeFailure):
            others = self._rotation.encoders(primer.order.pairing, excluded=primer.encoder.name)
            if others:
                cause = Cause(result.reason)
                self._metrics.retried(Role.ENCODE, cause)
                primer.order.trail.retried(Role.ENCODE, cause)
                self.move(primer, others)
                how = "retried"
                result = await self._attempt(primer, f"{primer.call_id}-r")
        self._metrics.encoded(how if isinstance(result, Encoded) else "failed", len(primer.items))
        return result

    def move(self, primer: Primer, encoders: Sequence[Member]) -> None:
        """Choose another of `encoders`, and count the items there."""
        self._load.end(primer.encoder.name, len(primer.items))
        primer.encoder = self._rotation.encoder(primer.items[0].key, encoders)
        self._load.begin(primer.encoder.name, len(primer.items))

    async def _attempt(self, primer: Primer, call_id: str) -> Encoded | EncodeFailure:
        order, encoder = primer.order, primer.encoder
        pushed = push(order.consumer, order.request, primer.items) if order.consumer else None
        call = Call(
            address=encoder.address,
            path=CHAT_PATH,
            headers={**order.headers, "content-type": "application/json", "x-request-id": call_id},
            body=primer_body(order.request, primer.items, pushed.field() if pushed is not None else b""),
        )
        begun = time.monotonic()
        self._health.sent(encoder.name)
        answer = await self._ask(primer, call, begun)
        if isinstance(answer, Cause):
            self._health.failed(encoder.name, answer)
            return EncodeFailure(reason=str(answer))
        if answer.status >= 500:
            self._health.failed(encoder.name, Cause.STATUS)
        else:
            self._health.succeeded(encoder.name)
        if answer.status != 200:
            reason = str(Cause.STATUS)
            return EncodeFailure(reason=reason, status=answer.status, headers=answer.headers, body=answer.body)
        self._metrics.encode_took(time.monotonic() - begun)
        return self._read(primer, answer, pushed)

    async def _ask(self, primer: Primer, call: Call, begun: float) -> Fetched | Cause:
        """The whole answer, or why there is none."""
        self._expiry.begin(primer, begun)
        try:
            return await fetch(self._transport, call)
        except TransportError as error:
            return error.cause
        except asyncio.CancelledError:
            if not primer.late:
                raise
            primer.late = False
            return Cause.TIMEOUT
        finally:
            self._expiry.end(primer)

    def _read(self, primer: Primer, answer: Fetched, pushed: Push | None) -> Encoded | EncodeFailure:
        entries = pushed.read(answer.body) if pushed is not None else ()
        if pushed is not None and not entries:
            return EncodeFailure(reason=str(Cause.PROTOCOL))
        reports = read_report(answer.body, len(primer.items))
        reported = {item.key: reports[place] for place, item in enumerate(primer.items)}
        announced = read_announcement(answer.body) if self._announced else {}
        return Encoded(encoder=primer.encoder.name, reported=reported, announced=announced, pushed=entries)


def _give_up(primer: Primer) -> None:
    primer.late = True
    primer.cancel()
