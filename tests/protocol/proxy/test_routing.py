"""Which engines requests meet, over sockets: affinity, prefill and decode as two, connectors that push."""

from __future__ import annotations

import pytest

from epd.proxy.affinity import Affinity
from protocol.proxy.stubs import decoder, encoder, image, proxy, text

FOUR = [f"pd{n}" for n in range(4)]


@pytest.mark.parametrize("affinity", [Affinity.SESSION, Affinity.PREFIX])
async def test_requests_that_belong_together_meet_one_engine(affinity: Affinity) -> None:
    async with proxy(encoder(), *[decoder(name) for name in FOUR], affinity=affinity) as p:
        met: dict[str, set[str]] = {}
        for name in ("a", "b", "c", "d", "e", "f") * 3:
            # in a session any text goes; without one the beginning of the prompt counts
            content = [image(), text("Why?")] if affinity is Affinity.SESSION else [image(), text(f"What is {name}?")]
            answer = await p.chat(*content, headers={"x-session-id": name})
            assert answer.status == 200
            met.setdefault(name, set()).add(answer.headers["x-epd-prefill"])
        assert {len(engines) for engines in met.values()} == {1}
        assert len(set.union(*met.values())) > 1


async def test_a_session_goes_on_elsewhere_when_its_engine_is_gone() -> None:
    engines = [decoder(name) for name in FOUR]
    async with proxy(encoder(), *engines, affinity=Affinity.SESSION) as p:
        first = (await p.chat(text(), session_id="s")).headers["x-epd-prefill"]
        left = [engine.member() for engine in engines if engine.name != first]
        p.members.replace(left)
        others = {(await p.chat(text(), session_id="s")).headers["x-epd-prefill"] for _ in range(4)}
        assert len(others) == 1
        p.members.replace(engine.member() for engine in engines)
        assert (await p.chat(text(), session_id="s")).headers["x-epd-prefill"] == first
