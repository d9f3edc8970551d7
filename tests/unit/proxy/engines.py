"""A transport without sockets: engines answer from a script, and every call is on record."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from epd.api.names import Role
from epd.proxy.arrival import Arrival
from epd.proxy.connectors import Connector
from epd.proxy.exchange import Exchange
from epd.proxy.media import MediaPolicy
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Member, Members
from epd.proxy.requests import CHAT_PATH, parse_chat
from epd.proxy.routing import InFlight
from epd.proxy.settings import EncoderFailurePolicy, Limits
from epd.proxy.transport import Answer, Body, Call, Cause, Sink, Transport, TransportError

STREAM = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}
ROLE_CHUNK = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
CONTENT = b'data: {"choices":[{"delta":{"content":"red"}}]}\n\n'


@dataclass
class Collected:
    """A sink that keeps all; `over` has the end, or the error."""

    body: bytearray
    over: asyncio.Future[None]

    def write(self, data: bytes) -> None:
        self.body += data

    def end(self) -> None:
        self.over.set_result(None)

    def fail(self, error: TransportError) -> None:
        self.over.set_exception(error)


@dataclass
class Scripted(Answer):
    """One answer. A `TransportError` among `chunks` is raised there; None waits for ever."""

    # made anew each time: a default of the class would hide the attribute of the compiled one
    status: int = field(default_factory=lambda: 200)
    headers: dict[str, str] = field(default_factory=lambda: JSON)
    chunks: list[bytes | TransportError | None] = field(default_factory=list)
    closed: int = 0
    paused: bool = False
    sink: Sink | None = None

    async def read(self) -> bytes:
        body, broke = bytearray(), asyncio.get_running_loop().create_future()
        self.relay(Collected(body, broke))
        await broke
        return bytes(body)

    def relay(self, sink: Sink) -> None:
        self.sink = sink
        self._push()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self._push()

    def _over(self) -> Sink:
        """The sink, which hears no more; another one may hear it again."""
        assert self.sink is not None
        sink, self.sink = self.sink, None
        return sink

    def _push(self) -> None:
        while self.sink is not None and not self.paused and not self.closed:
            if not self.chunks:
                self._over().end()
                return
            chunk = self.chunks[0]
            if chunk is None:
                return
            if isinstance(chunk, TransportError):
                self._over().fail(chunk)
                return
            del self.chunks[0]
            self.sink.write(chunk)

    def close(self) -> None:
        self.closed += 1


def joined(body: Body) -> bytes:
    return body if isinstance(body, bytes) else b"".join(body)


def document(value: Any, status: int = 200) -> Scripted:
    return Scripted(status=status, chunks=[json.dumps(value).encode()])


def streamed(*chunks: bytes | TransportError | None) -> Scripted:
    return Scripted(headers=STREAM, chunks=list(chunks))


def broken(cause: Cause) -> TransportError:
    return TransportError(cause, str(cause))


def encoded(place: int) -> dict[str, Any]:
    """What an encoder reports of the item at `place`."""
    return {"item_indices": [place], "metadata": {"image_grid_thw": [1, 8, 8]}}


HANG = asyncio.Event  # a script entry: the engine takes the call and never answers


@dataclass
class Engines(Transport):
    """Answers calls by member name: the next of its script, else the usual answer of its role."""

    scripts: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    answers: list[Scripted] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def send(self, call: Call) -> Scripted:
        name = call.address.removeprefix("http://")
        self.calls.append((name, json.loads(joined(call.body) or b"{}")))
        script = self.scripts[name]
        answer = script.pop(0) if script else self._usual(name, call)
        try:
            # one step of the loop at least, as with any socket
            await (self.gate.wait() if self.gate else asyncio.sleep(0))
            if answer is HANG:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        if isinstance(answer, TransportError):
            raise answer
        # a copy, since tables share scripted answers between tests
        answer = replace(answer, chunks=list(answer.chunks))
        self.answers.append(answer)
        return answer

    def _usual(self, name: str, call: Call) -> Scripted:
        if not name.startswith("e"):
            return document({"choices": [{"message": {"content": "red"}}]})
        parts = json.loads(joined(call.body))["messages"][0]["content"]
        return document({"ec_transfer_params": {part["uuid"]: encoded(n) for n, part in enumerate(parts)}})

    def called(self) -> list[str]:
        return [name for name, _ in self.calls]


async def until_called(engines: Engines, times: int) -> None:
    """Wait until the engines got `times` calls, at most 10 s."""
    async with asyncio.timeout(10):
        while len(engines.calls) < times:  # noqa: ASYNC110 - one wait for any number of calls
            await asyncio.sleep(0)


async def settle() -> None:
    """Let cancelled tasks end and their callbacks run: nothing scripted needs more steps of the loop."""
    for _ in range(5):
        await asyncio.sleep(0)


ROLES = {"e": Role.ENCODE, "d": Role.PREFILL_DECODE, "first": Role.PREFILL, "last": Role.DECODE}
"""By the beginning of a name."""


def member(name: str, pairing: str = "p", *, ready: bool = True) -> Member:
    [role] = [role for beginning, role in ROLES.items() if name.startswith(beginning)]
    return Member(name=name, role=role, pairing=pairing, address=f"http://{name}", ready=ready)


@dataclass
class Bench:
    """An exchange over scripted engines."""

    exchange: Exchange
    engines: Engines
    members: Members
    load: InFlight
    metrics: Metrics

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, {"namespace": "", "epd": "", **labels}) or 0.0


def bench(
    *members: Member,
    policy: EncoderFailurePolicy = EncoderFailurePolicy.FALLBACK,
    encodes: bool = True,
    rewrites: bool = False,
    limits: Limits | None = None,
    scripts: dict[str, list[Any]] | None = None,
    connector: Connector = Connector.EXAMPLE,
    hint_seconds: float = 0,
    split: bool = False,
    engines: Engines | None = None,
) -> Bench:
    known, load, metrics = Members(), InFlight(), Metrics(namespace="", epd="")
    engines = engines or Engines()
    known.replace(members)
    engines.scripts.update(scripts or {})
    exchange = Exchange(
        encodes=encodes,
        rewrites=rewrites,
        policy=policy,
        limits=limits or Limits(),
        transport=engines,
        members=known,
        load=load,
        metrics=metrics,
        connector=connector,
        hint_seconds=hint_seconds,
        split=split,
    )
    return Bench(exchange, engines, known, load, metrics)


def asking(
    content: list[dict[str, Any]], *, seconds: float = 60, headers: dict[str, str] | None = None, **fields: Any
) -> Arrival:
    """A request for chat: what its user says, and further `fields` of its body."""
    body = json.dumps({"messages": [{"role": "user", "content": content}], **fields}).encode()
    now = time.monotonic()
    return Arrival(
        path=CHAT_PATH,
        request=parse_chat(body, policy=MediaPolicy()),
        request_id="r",
        headers=headers or {},
        arrived=now,
        deadline=now + seconds,
    )


def picture(payload: str) -> dict[str, Any]:
    """A part with a picture (a base64 text)."""
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{payload}"}}


def arrival(*pictures: str, seconds: float = 60, headers: dict[str, str] | None = None) -> Arrival:
    """A request with `pictures` (base64 texts)."""
    text = {"type": "text", "text": "What colour?"}
    return asking([text, *map(picture, pictures)], seconds=seconds, headers=headers)
