"""One attempt over two engines: one prefills the prompt, the other takes its KV cache over and answers.

Both get the same body but for what ends the first after one token and for `kv_transfer_params`, by which they find each
other (vLLM v1 NixlConnector; connectors that find each other by the prompt return none). Never chooses who answers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from epd.api.names import Role
from epd.proxy.arrival import NOBODY, Arrival, Attempt, Side
from epd.proxy.attempts import ENGINES_AT_RISK
from epd.proxy.documents import read_unbounded, write, write_exactly
from epd.proxy.errors import ExhaustedError, InvalidRequestError, UnavailableError
from epd.proxy.fetching import fetch
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Member
from epd.proxy.prefill import PrefillSide, passed_on
from epd.proxy.requests import CHAT_PATH
from epd.proxy.rotation import Rotation
from epd.proxy.routes import TWO_LEGS
from epd.proxy.transfers import strip_answer
from epd.proxy.transport import Body, Call, Cause, Reply, Transport, TransportError

_DROPPED: Final = ("stream_options", "min_tokens")
"""Fields that are refused beside those that end an answer after one token."""

PREFILL_ONLY: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
)
"""Has an engine keep the KV cache of a prompt for another (vLLM v1/nixl/pull_scheduler.py; its proxies send it too)."""


class Legs(Side):
    """Makes attempts as `PrefillSide` does, which makes the second leg."""

    def __init__(self, *, transport: Transport, decode: PrefillSide, rotation: Rotation, metrics: Metrics) -> None:
        self._transport = transport
        self._decode = decode
        self._rotation = rotation
        self._load = rotation.load
        self._health = rotation.health
        self._metrics = metrics

    async def attempt(
        self, arrival: Arrival, member: Member, body: bytes | None = None, *, failed_on: frozenset[str] = NOBODY
    ) -> Attempt:
        """Have the prompt prefilled, then answered by `member`; with `body` if given.

        An answer of the first engine ends the attempt if it is about the request; a failure is tried once more
        elsewhere, but where a body without media failed, or too many engines did. Raises UnavailableError if none of
        them does it.
        """
        if arrival.path not in TWO_LEGS:
            return await self._decode.attempt(arrival, member, body, failed_on=failed_on)
        ends: dict[str, Any] = {"stream": False, "max_tokens": 1, "kv_transfer_params": dict(PREFILL_ONLY)}
        if arrival.path == CHAT_PATH:
            ends["max_completion_tokens"] = 1
        # its place is taken while the other works, so that nobody else is given it
        self._load.begin(member.name)
        try:
            prompt = _body(arrival, body, ends, _DROPPED)
            first, engine = await self._prefill(arrival, member.pairing, prompt, body is not None, failed_on)
        except BaseException:
            self._load.give_up(member.name)
            raise
        if first.cause is not None or first.reply is None or first.reply.status != 200:
            self._load.give_up(member.name)
            return _named(first, engine)
        arrival.trail.prefilled = engine.name
        params = _transfer_params(first.reply.body)
        self._load.withdraw(member.name)
        if body is None:
            # nothing of the media is copied for that
            arrival = replace(arrival, request=arrival.request.with_fields(params))
        else:
            body = _with_fields(body, params)
        return _named(await self._decode.attempt(arrival, member, body, failed_on=first.failed_on), engine)

    async def _prefill(
        self, arrival: Arrival, pairing: str, body: Body, bare: bool, failed_on: frozenset[str]
    ) -> tuple[Attempt, Member]:
        engine = self._choose(arrival, pairing, failed_on)
        if engine is None:
            raise UnavailableError("no prefill engine is ready")
        attempt = (await self._ask(arrival, engine, body, bare)).after(failed_on, engine.name)
        if attempt.cause is None or (bare and attempt.reply is not None):
            return attempt, engine
        failed_on = attempt.failed_on
        other = self._choose(arrival, pairing, failed_on, excluded=engine.name)
        if other is not None and len(failed_on) < ENGINES_AT_RISK:
            self._metrics.retried(Role.PREFILL, attempt.cause)
            arrival.trail.retried(Role.PREFILL, attempt.cause)
            engine = other
            attempt = (await self._ask(arrival, engine, body, bare)).after(failed_on, engine.name)
        if attempt.cause is Cause.LOCAL:
            raise ExhaustedError
        if attempt.cause is not None:
            raise UnavailableError(f"prefill engine {engine.name} does not answer", code="engine_unavailable")
        return attempt, engine

    def _choose(
        self, arrival: Arrival, pairing: str, failed_on: frozenset[str], *, excluded: str = ""
    ) -> Member | None:
        """Choose an engine that prefills, rather none that failed of the request.

        And rather not the one whose work was lost: whoever was to take it over may have failed for that.
        """
        prefiller, key = self._rotation.prefiller, arrival.key
        return (
            prefiller(key, pairing, excluded=failed_on | {excluded, arrival.trail.prefilled})
            or prefiller(key, pairing, excluded=failed_on | {excluded})
            or prefiller(key, pairing, excluded=(excluded,))
        )

    async def _ask(self, arrival: Arrival, engine: Member, body: Body, bare: bool) -> Attempt:
        call = Call(
            address=engine.address,
            path=arrival.path,
            headers={**arrival.headers, "content-type": "application/json", "x-request-id": arrival.request_id},
            body=body,
        )
        self._health.sent(engine.name)
        self._load.begin(engine.name)
        try:
            answer = await fetch(self._transport, call)
        except TransportError as error:
            self._health.failed(engine.name, error.cause)
            return Attempt(error.cause, None)
        finally:
            self._load.end(engine.name)
        # of an answer that counts the transfer fields are what is wanted; only a refusal goes to the client
        said = answer.body if answer.status == 200 else strip_answer(answer.body)
        reply = Reply(status=answer.status, headers=passed_on(answer.headers), body=said)
        if answer.status >= 500:
            if not bare:
                # an entry may be missing, which is not its fault
                self._health.failed(engine.name, Cause.STATUS)
            return Attempt(Cause.STATUS, reply)
        self._health.succeeded(engine.name)
        return Attempt(None, reply)


def _named(attempt: Attempt, engine: Member) -> Attempt:
    if attempt.reply is not None:
        attempt.reply.headers["x-epd-prefill"] = engine.name
    return attempt


def _body(arrival: Arrival, body: bytes | None, added: Mapping[str, Any], dropped: Collection[str]) -> Body:
    if body is None:
        return arrival.request.with_fields(added, dropped=dropped).body
    return _with_fields(body, added, dropped)


def _with_fields(body: bytes, added: Mapping[str, Any], dropped: Collection[str] = ()) -> bytes:
    document, exact = read_unbounded(body)
    kept = {name: value for name, value in document.items() if name not in dropped}
    return (write_exactly if exact else write)({**kept, **added})


def _transfer_params(answer: bytes) -> dict[str, Any]:
    """The field that leads the second engine to the first one's work, unchanged."""
    try:
        params = read_unbounded(answer)[0].get("kv_transfer_params")
    except InvalidRequestError:
        return {}
    return {"kv_transfer_params": params} if params is not None else {}
