"""One request at a time, from its head to its end, apart from the connection that reads it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import pytest

from epd.proxy.errors import NotFoundError, ProxyError
from epd.proxy.framing import CONTINUE
from epd.proxy.head import Head
from epd.proxy.patience import BODY_SECONDS, GRACE_SECONDS, Patience
from epd.proxy.sending import ReplySender
from epd.proxy.serving import SWALLOW_LIMIT, Serving
from epd.proxy.transport import Reply
from unit.proxy.clients import settle
from unit.proxy.recorder import RecordedTurn, Recorder, Wire, statuses


@dataclass
class Served:
    """What serves `recorder` over a transport in memory; `sent` counts the replies that are out."""

    recorder: Recorder
    sent: int = 0
    wire: Wire = field(init=False)
    patience: Patience = field(init=False)
    serving: Serving = field(init=False)

    def __post_init__(self) -> None:
        # its own connection takes no part
        self.wire = Wire(Recorder())
        self.patience = Patience(asyncio.get_running_loop(), lambda now: None)
        sender = ReplySender(self.wire, self._out)
        self.serving = Serving(self.recorder, sender=sender, patience=self.patience, transport=self.wire)

    def _out(self) -> None:
        self.sent += 1
        self.serving.end(left=False)

    def answer(self) -> RecordedTurn:
        self.serving.begin(head(length=0), more=False)
        [turn] = self.recorder.turns
        self.serving.answer(turn)
        return turn


def head(*, length: int | None, expects: bool = False, persistent: bool = True) -> Head:
    return Head("POST", "/", "/", {}, length, minor=1, persistent=persistent, expects=expects)


async def forever(turn: RecordedTurn) -> Reply:
    await asyncio.Event().wait()
    raise AssertionError


async def test_a_request_is_begun_fed_answered_and_ended() -> None:
    served = Served(Recorder(seconds=1000))
    begun = time.monotonic()
    served.serving.begin(head(length=2), more=False)
    [turn] = served.recorder.turns
    assert begun <= served.patience.due - BODY_SECONDS <= time.monotonic()
    served.serving.feed(b"{", last=False)
    served.serving.feed(b"}", last=True)
    served.serving.answer(turn)
    assert served.patience.due == turn.deadline
    assert (turn.body, turn.ends, served.sent, served.serving.turn) == (b"{}", [False], 1, None)
    assert (statuses(served.wire.sent), served.serving.closes) == ([200], False)


@pytest.mark.parametrize(
    ("expects", "more", "asked"), [(True, False, True), (True, True, False), (False, False, False)]
)
async def test_only_who_waits_for_a_word_gets_it(*, expects: bool, more: bool, asked: bool) -> None:
    served = Served(Recorder())
    served.serving.begin(head(length=2, expects=expects), more=more)
    assert served.wire.sent == (CONTINUE if asked else b"")


def refuses(turn: RecordedTurn) -> None:
    raise NotFoundError("no")


@pytest.mark.parametrize(
    ("left", "expects", "persistent", "draining", "closes"),
    [
        (SWALLOW_LIMIT, False, True, False, False),
        (SWALLOW_LIMIT + 1, False, True, False, True),
        (None, False, True, False, True),
        (2, True, True, False, True),
        (2, False, False, False, True),
        (2, False, True, True, True),
    ],
)
async def test_a_refusal_ends_the_connection_unless_the_rest_is_small_and_sure_to_come(
    left: int | None, *, expects: bool, persistent: bool, draining: bool, closes: bool
) -> None:
    served = Served(Recorder(begins=refuses, draining=draining))
    with pytest.raises(ProxyError) as error:
        served.serving.begin(head(length=left, expects=expects, persistent=persistent), more=False)
    served.serving.refuse(error.value, left=left)
    [turn] = served.recorder.turns
    assert (statuses(served.wire.sent), served.serving.closes, turn.ends) == ([404], closes, [False])
    # what follows is dropped
    served.serving.feed(b"x", last=True)
    assert (turn.body, served.serving.turn) == (b"", None)


async def test_what_is_no_request_is_refused_and_ends_the_connection() -> None:
    served = Served(Recorder())
    served.serving.refuse(NotFoundError("no"), left=0)
    assert (statuses(served.wire.sent), served.serving.closes, served.recorder.turns) == ([404], True, [])


async def test_a_turn_that_is_late_is_told_so_once() -> None:
    served = Served(Recorder(answers=forever))
    turn = served.answer()
    served.serving.look(turn, turn.deadline)
    await settle()
    assert (turn.cancelled, statuses(served.wire.sent), turn.ends) == (True, [504], [False])
    assert served.patience.due == turn.deadline + GRACE_SECONDS


async def test_a_turn_that_does_not_end_after_its_time_is_broken_off() -> None:
    async def clings(turn: RecordedTurn) -> Reply:
        try:
            return await forever(turn)
        finally:
            await forever(turn)

    served = Served(Recorder(answers=clings))
    turn = served.answer()
    served.serving.look(turn, turn.deadline)
    served.serving.look(turn, turn.deadline)
    assert served.wire.state == "open"
    served.serving.look(turn, turn.deadline + GRACE_SECONDS)
    assert served.wire.state == "aborted"


@pytest.mark.parametrize("quits", [False, True])
async def test_who_went_first_is_told_to_the_turn(*, quits: bool) -> None:
    served = Served(Recorder(answers=forever))
    turn = served.answer()
    if quits:
        served.serving.abort()
    served.serving.lost()
    await settle()
    assert (turn.cancelled, turn.ends, turn.broken) == (True, [not quits], quits)
    assert served.wire.sent == b""


async def test_probes_are_sent_while_there_is_a_request() -> None:
    served = Served(Recorder(answers=forever))
    assert not served.serving.probe()
    served.answer()
    assert served.serving.probe()
    assert served.wire.sent == CONTINUE
