"""Takes members that were given by flag in and out of rotation by their `/health`, as Kubernetes does for pods."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from epd.proxy.pods import Member, Members
from epd.proxy.settings import Probing
from epd.proxy.transport import Call, Cause, Transport, TransportError


class Prober:
    """Probes `given` members in turn and writes the outcome into `members`."""

    def __init__(
        self, *, transport: Transport, members: Members, given: Sequence[Member], probing: Probing | None = None
    ) -> None:
        self._probing = probing or Probing()
        self._transport = transport
        self._members = members
        self._given = given
        self._failures = dict.fromkeys((member.name for member in given), self._probing.failures)

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            await self.probe_all()
            await asyncio.sleep(self._probing.interval_seconds)

    async def probe_all(self) -> None:
        """Probe every member once, at the same time."""
        await asyncio.gather(*(self._probe(member) for member in self._given))
        self._members.replace(
            replace(member, ready=self._failures[member.name] < self._probing.failures) for member in self._given
        )

    async def _probe(self, member: Member) -> None:
        try:
            async with asyncio.timeout(self._probing.timeout_seconds):
                answer = await self._transport.send(Call(address=member.address, path="/health", method="GET"))
                await answer.read()
                answer.close()
            failed = self._probing.failures if answer.status >= 500 else 0
        except TransportError as error:
            if error.cause is Cause.LOCAL:
                # nothing is known of the engine
                return
            failed = self._probing.failures if error.cause is Cause.REFUSED else 1
        except TimeoutError:
            failed = 1
        self._failures[member.name] = self._failures[member.name] + failed if failed else 0
