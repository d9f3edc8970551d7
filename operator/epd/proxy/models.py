"""The list of models, as an engine of the prefill side has it. Never chooses the first engine that is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from epd.proxy.attempts import ENGINES_AT_RISK
from epd.proxy.errors import ExhaustedError, UnavailableError
from epd.proxy.fetching import fetch
from epd.proxy.pods import Member
from epd.proxy.prefill import passed_on
from epd.proxy.requests import MODELS_PATH
from epd.proxy.rotation import Rotation
from epd.proxy.transport import Call, Cause, Reply, Transport, TransportError

MODELS_SECONDS: Final = 10
"""The list of models is in the engine's memory; this survives an event loop that is busy with a large picture."""
MODELS_KEY: Final = "models"
"""Stands for the request's id where engines are equal."""


class Models:
    """Asks engines for their list. It counts as their load as any request does, and a failure speaks against them.

    An answer takes back no more than that: an engine may have its list at hand and fail of all that it should generate.
    """

    def __init__(self, *, transport: Transport, rotation: Rotation) -> None:
        self._transport = transport
        self._rotation = rotation
        self._load = rotation.load
        self._health = rotation.health
        self._doubted: set[str] = set()
        """Engines whose last list failed."""

    async def ask(self, first: Member, headers: Mapping[str, str]) -> Reply:
        """Have `first` answer, or another one if it does not. Raises UnavailableError."""
        failed: list[str] = []
        member: Member | None = first
        while member is not None and len(failed) < ENGINES_AT_RISK:
            reply = await self._attempt(member, headers)
            if reply is not None:
                return reply
            failed.append(member.name)
            member = self._rotation.prefill(MODELS_KEY, excluded=failed)
        raise UnavailableError(f"{', '.join(failed)}: no answer", code="engine_unavailable")

    async def _attempt(self, member: Member, headers: Mapping[str, str]) -> Reply | None:
        call = Call(address=member.address, path=MODELS_PATH, method="GET", headers=headers)
        if member.name in self._doubted:
            self._health.sent(member.name)
        self._load.begin(member.name)
        try:
            async with asyncio.timeout(MODELS_SECONDS):
                answer = await fetch(self._transport, call)
        except (TransportError, TimeoutError) as error:
            cause = error.cause if isinstance(error, TransportError) else Cause.TIMEOUT
            if cause is Cause.LOCAL:
                raise ExhaustedError from error
            self._doubt(member, cause)
            return None
        finally:
            self._load.end(member.name)
        if answer.status >= 500:
            self._doubt(member, Cause.STATUS)
        elif member.name in self._doubted:
            self._doubted.discard(member.name)
            self._health.succeeded(member.name)
        return Reply(status=answer.status, headers=passed_on(answer.headers), body=answer.body)

    def _doubt(self, member: Member, cause: Cause) -> None:
        self._health.failed(member.name, cause)
        self._doubted.add(member.name)
        # pods come and go
        self._doubted &= {known.name for known in self._rotation.answering()}
