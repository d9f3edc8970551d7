"""When pods are read again, and what is said about it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from epd.proxy.pods import Members, Pod
from epd.proxy.watch import LAST_BACKOFF_SECONDS, backoff_seconds, follow
from unit.proxy.podobjects import pod

BOOKMARK = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
EXPIRED = {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}


class AwayError(Exception):
    """The API server can't be reached."""


@dataclass
class Source:
    """Each turn is an error of the list, or the events of the watch that follows it."""

    turns: list[Exception | list[dict[str, Any]]]
    watched: list[str] = field(default_factory=list)

    async def list_pods(self) -> tuple[list[Pod], str]:
        if not self.turns:
            raise asyncio.CancelledError
        if isinstance(turn := self.turns[0], Exception):
            self.turns.pop(0)
            raise turn
        return [pod("a")], str(len(self.turns))

    async def watch_pods(self, resource_version: str) -> AsyncIterator[dict[str, Any]]:
        self.watched.append(resource_version)
        turn = self.turns.pop(0)
        assert isinstance(turn, list)
        for event in turn:
            yield event


async def followed(*turns: Exception | list[dict[str, Any]]) -> tuple[Members, list[float], int]:
    """Members at the end, the pauses between turns in seconds, and how many turns ended with an error."""
    members, pauses, errors = Members(), [], []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    with pytest.raises(asyncio.CancelledError):
        await follow(Source(list(turns)), members, on_error=lambda: errors.append(None), sleep=sleep)
    return members, pauses, len(errors)


def failures(pauses: list[float]) -> list[int]:
    """How many failures in a row each pause stands for: jitter takes up to half of it."""
    return [next(n for n in range(20) if pause <= backoff_seconds(n)) for pause in pauses]


ADDED = {"type": "ADDED", "object": pod("b")}
DELETED = {"type": "DELETED", "object": pod("b")}


@pytest.mark.parametrize(
    ("turns", "expected", "errors"),
    [
        ([[], [ADDED, BOOKMARK], []], [0, 0, 0], 0),
        ([AwayError(), AwayError(), AwayError(), []], [1, 2, 3, 0], 3),
        ([AwayError(), AwayError(), [ADDED], AwayError()], [1, 2, 0, 1], 3),
        ([[EXPIRED], [EXPIRED], []], [1, 2, 0], 2),
        ([AwayError(), [ADDED, EXPIRED], []], [1, 1, 0], 2),
    ],
)
async def test_pauses_grow_with_failures_in_a_row(turns: list[Any], expected: list[int], errors: int) -> None:
    _, pauses, failed = await followed(*turns)
    assert (failures(pauses), failed) == (expected, errors)


def test_the_longest_pause() -> None:
    assert backoff_seconds(6) == backoff_seconds(10**6) == LAST_BACKOFF_SECONDS


async def test_it_watches_from_the_list_and_keeps_what_it_saw_last() -> None:
    source = Source([[ADDED], [ADDED, DELETED]])
    members = Members()

    async def sleep(_: float) -> None:
        assert {member.name for member in members.all()} == ({"a", "b"} if len(source.watched) == 1 else {"a"})

    with pytest.raises(asyncio.CancelledError):
        await follow(source, members, on_error=lambda: None, sleep=sleep)
    assert source.watched == ["2", "1"]


async def test_an_api_server_that_is_away_is_said_once_and_so_is_its_return(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "epd.proxy.watch")
    members, _, _ = await followed([ADDED], AwayError(), AwayError(), [EXPIRED], [ADDED])
    assert [record.message.split(",")[0] for record in caplog.records] == [
        "reading pods failed",
        "pods can be read again",
    ]
    assert [member.name for member in members.all()] == ["a", "b"]
