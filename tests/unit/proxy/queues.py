"""A queue for engines with room, as tests of admission use it."""

from __future__ import annotations

import asyncio

from epd.proxy.admission import Admission
from epd.proxy.health import Health
from epd.proxy.metrics import Metrics
from epd.proxy.pods import Member, Members
from epd.proxy.record import Trail
from epd.proxy.rotation import Rotation
from epd.proxy.routing import InFlight


class Queue:
    """An admission to engines with room for one request each, or for `bound`. `now` is what engines' health goes by."""

    def __init__(self, *members: Member, limit: int = 16, seconds: float = 60, bound: int = 1) -> None:
        self.members, self.load = Members(), InFlight()
        self.members.replace(members)
        self.now = 0.0
        self.health = Health(self.members, on_ejected=[].append, clock=lambda: self.now)
        self.rotation = Rotation(members=self.members, load=self.load, health=self.health, bound=bound)
        self.metrics = Metrics(namespace="", epd="")
        self.admission = Admission(rotation=self.rotation, limit=limit, seconds=seconds, metrics=self.metrics)
        self.let_in: list[str] = []
        self.trail = Trail()

    def arrive(self, request: str, client: str = "", pairing: str | None = None) -> asyncio.Task[None]:
        return asyncio.create_task(self._request(request, client, pairing))

    async def _request(self, request: str, client: str, pairing: str | None) -> None:
        engine = await self.admission.wait(
            client,
            lambda bounded: self.rotation.prefill(request, pairing=pairing, bounded=bounded),
            self.trail,
            only=pairing or "",
        )
        if engine is not None:
            self.load.begin(engine.name)
        self.let_in.append(f"{request}@{engine.name if engine else None}")

    def arrive_at(self, engine: str, request: str, client: str) -> asyncio.Task[None]:
        """A request comes that only `engine` can answer."""
        return asyncio.create_task(self._request_at(engine, request, client))

    async def _request_at(self, engine: str, request: str, client: str) -> None:
        [wanted] = [one for one in self.rotation.answering() if one.name == engine]
        placed = await self.admission.room_at(wanted, client, self.trail)
        assert placed == wanted
        self.load.begin(engine)
        self.let_in.append(f"{request}@{engine}")

    def waited(self) -> float | None:
        return self.metrics.registry.get_sample_value("epd_proxy_queue_seconds_count", {"namespace": "", "epd": ""})
