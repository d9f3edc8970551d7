from __future__ import annotations

import asyncio
from typing import Any

import pytest

from epd.api.names import Role
from epd.proxy.arrival import Attempt
from epd.proxy.attempts import Attempts, Outcome
from epd.proxy.health import Health
from epd.proxy.prefill import PrefillSide
from epd.proxy.rotation import Rotation
from epd.proxy.transport import Cause, Reply
from unit.proxy.engines import HANG, Bench, arrival, bench, broken, document, member, until_called

D0, D1 = member("d0"), member("d1")
SPOKE = Attempt(Cause.STATUS, Reply(status=500, headers={}))
SILENT = Attempt(Cause.DISCONNECTED, None)
GOOD = Attempt(None, Reply(status=200, headers={}))


def attempts(b: Bench, ejected: list[Role] | None = None) -> Attempts:
    side = PrefillSide(transport=b.engines, load=b.load, idle_seconds=60)
    health = Health(b.members, on_ejected=[].append if ejected is None else ejected.append)
    rotation = Rotation(members=b.members, load=b.load, health=health, bound=0)
    return Attempts(prefill_side=side, rotation=rotation, metrics=b.metrics)


@pytest.mark.parametrize(
    ("outcome", "deserted"),
    [
        (Outcome(), True),
        (Outcome(GOOD, D0), False),
        (Outcome(SPOKE, D0, alone=True), True),
        (Outcome(SPOKE, D0, alone=False), False),
        (Outcome(SILENT, D0, alone=False), True),
        (Outcome(SILENT, D0, alone=False, failed_on=frozenset({"d0"})), True),
        (Outcome(SILENT, D0, alone=False, failed_on=frozenset({"d0", "d1"})), False),
    ],
)
def test_a_pairing_is_deserted_while_an_engine_may_still_be_risked(outcome: Outcome, deserted: bool) -> None:
    assert outcome.deserted == deserted


async def test_an_outcome_names_the_engines_that_took_the_request_and_failed() -> None:
    bare = b'{"bare":1}'
    table = {
        ("good", "good"): (frozenset(), False),
        ("ill", "good"): ({"d0"}, True),
        ("ill", "ill"): ({"d0", "d1"}, True),
        ("gone", "ill"): ({"d1"}, False),
        ("gone", "gone"): (frozenset(), False),
        ("unreachable", "ill"): ({"d1"}, False),
    }
    answers = {"good": document({}), "ill": document({}, 500), "gone": broken(Cause.REFUSED)}
    answers["unreachable"] = broken(Cause.LOCAL)
    for (first, second), (failed_on, resent) in table.items():
        b = bench(D0, D1, scripts={"d0": [answers[first]], "d1": [answers[second]]})
        outcome = await attempts(b).ask(arrival(), D0, "p", bare=bare)
        assert (outcome.failed_on, outcome.resent) == (failed_on, resent), (first, second)
        assert [body == {"bare": 1} for _, body in b.engines.calls] == ([True] if first == "good" else [True, False])


@pytest.mark.parametrize(
    ("answer", "asked", "failed_on"),
    [
        (document({}), ["d0"], set()),
        # it may have been the connection alone
        (broken(Cause.DISCONNECTED), ["d0", "d0"], {"d0"}),
        (broken(Cause.REFUSED), ["d0"], set()),
        (document({}, 500), ["d0"], {"d0"}),
    ],
)
async def test_only_the_target_can_answer(answer: Any, asked: list[str], failed_on: set[str]) -> None:
    b = bench(D0, D1, scripts={"d0": [answer]})
    outcome = await attempts(b).ask(arrival(), D0, "p", only=True)
    assert (b.engines.called(), outcome.member, outcome.failed_on) == (asked, D0, failed_on)


async def test_what_failed_on_two_is_not_tried_again() -> None:
    b = bench(D0, D1, scripts={"d0": [document({}, 500)]})
    outcome = await attempts(b).ask(arrival(), D0, "p", failed_on=frozenset({"d9"}))
    assert (b.engines.called(), outcome.failed_on, outcome.deserted) == (["d0"], {"d0", "d9"}, False)
    assert await attempts(b).ask(arrival(), None, "p", failed_on=outcome.failed_on) == Outcome(
        failed_on=outcome.failed_on
    )


@pytest.mark.parametrize(
    ("answer", "bare", "times"),
    [
        (broken(Cause.REFUSED), None, 1),
        (broken(Cause.DISCONNECTED), None, 2),
        (document({}, 500), None, 5),
        # an entry may be missing, and what an engine refuses is not its fault
        (document({}, 500), b"{}", None),
        (document({}, 400), None, None),
        (document({}, 429), None, None),
    ],
)
async def test_failures_put_an_engine_out(answer: Any, bare: bytes | None, times: int | None) -> None:
    b = bench(D0, scripts={"d0": [answer, *([document({})] if bare else [])] * 12})
    ejected: list[Role] = []
    ask, asked = attempts(b, ejected), 0
    while not ejected and asked < 6:
        await ask.ask(arrival(), D0, "p", bare=bare, failed_on=frozenset({"other"}))
        asked += 1
    assert (asked if ejected else None) == times


async def test_an_engine_on_trial_gets_one_request() -> None:
    now = [1000.0]
    b = bench(D0, scripts={"d0": [broken(Cause.REFUSED), HANG]})
    health = Health(b.members, on_ejected=[].append, clock=lambda: now[0])
    side = PrefillSide(transport=b.engines, load=b.load, idle_seconds=60)
    rotation = Rotation(members=b.members, load=b.load, health=health, bound=0)
    ask = Attempts(prefill_side=side, rotation=rotation, metrics=b.metrics)
    await ask.ask(arrival(), D0, "p")
    now[0] += 1
    assert health.admits("d0")
    task = asyncio.create_task(ask.ask(arrival(), D0, "p"))
    await until_called(b.engines, 2)
    assert not health.admits("d0")
    task.cancel()
