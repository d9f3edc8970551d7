from __future__ import annotations

import pytest

from epd.proxy.attempts import Attempts, Outcome
from epd.proxy.prefill import Attempt, PrefillSide
from epd.proxy.transport import Cause, Reply
from unit.proxy.engines import Bench, arrival, bench, broken, document, member

D0, D1 = member("d0"), member("d1")
SPOKE = Attempt(Cause.STATUS, Reply(status=500, headers={}))
SILENT = Attempt(Cause.DISCONNECTED, None)
GOOD = Attempt(None, Reply(status=200, headers={}))


def attempts(b: Bench) -> Attempts:
    side = PrefillSide(transport=b.engines, load=b.load, metrics=b.metrics, idle_seconds=60)
    return Attempts(prefill_side=side, members=b.members, load=b.load, metrics=b.metrics)


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


def test_an_engine_is_chosen_by_pairing_and_encoders() -> None:
    b = bench(member("e0", "new"), member("d0", "new"), member("d1", "old"), member("d2", "old", ready=False))
    choose, request = attempts(b).choose, arrival()
    b.load.begin("d0")
    chosen = [
        choose(request),
        choose(request, wants_encoders=True),
        choose(request, pairing="new"),
        choose(request, avoided="old"),
        choose(request, excluded="d1"),
        choose(request, pairing="new", excluded="d0"),
    ]
    assert [found and found.name for found in chosen] == ["d1", "d0", "d0", "d0", "d0", None]


async def test_an_outcome_names_the_engines_that_took_the_request_and_failed() -> None:
    bare = b'{"bare":1}'
    table = {
        ("good", "good"): (frozenset(), False),
        ("ill", "good"): ({"d0"}, True),
        ("ill", "ill"): ({"d0", "d1"}, True),
        ("gone", "ill"): ({"d1"}, False),
        ("gone", "gone"): (frozenset(), False),
    }
    answers = {"good": document({}), "ill": document({}, 500), "gone": broken(Cause.REFUSED)}
    for (first, second), (failed_on, resent) in table.items():
        b = bench(D0, D1, scripts={"d0": [answers[first]], "d1": [answers[second]]})
        outcome = await attempts(b).ask(arrival(), D0, "p", bare=bare)
        assert (outcome.failed_on, outcome.resent) == (failed_on, resent), (first, second)
        assert [body == {"bare": 1} for _, body in b.engines.calls] == ([True] if first == "good" else [True, False])


async def test_what_failed_on_two_is_not_tried_again() -> None:
    b = bench(D0, D1, scripts={"d0": [document({}, 500)]})
    outcome = await attempts(b).ask(arrival(), D0, "p", failed_on=frozenset({"d9"}))
    assert (b.engines.called(), outcome.failed_on, outcome.deserted) == (["d0"], {"d0", "d9"}, False)
    assert await attempts(b).ask(arrival(), None, "p", failed_on=outcome.failed_on) == Outcome(
        failed_on=outcome.failed_on
    )
