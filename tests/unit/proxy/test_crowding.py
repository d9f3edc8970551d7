from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from epd.proxy import crowding
from epd.proxy.crowding import (
    MOST_CONNECTIONS,
    MOST_DESCRIPTORS,
    Crowd,
    connection_limit,
    default_limit,
    raise_descriptors,
)
from epd.proxy.errors import ProxyError

NOW = 1000.0


@dataclass(eq=False)
class Client:
    """A connection that has been idle since so many seconds; None where it is busy."""

    name: str
    since: float | None = None
    heard: list[str] = field(default_factory=list)

    @property
    def idle_since(self) -> float | None:
        return self.since

    def make_room(self) -> None:
        self.heard.append("closed")

    def turn_away(self, error: ProxyError) -> None:
        self.heard.append(f"{error.status} {error.error_code}")

    def abort(self) -> None:
        self.heard.append("aborted")


def crowd(limit: int, *clients: Client) -> Crowd[Client]:
    made: Crowd[Client] = Crowd(limit, clock=lambda: NOW)
    for client in clients:
        made.enter(client)
    return made


def busy(number: int) -> list[Client]:
    return [Client(str(each)) for each in range(number)]


def test_up_to_the_limit_all_stay() -> None:
    clients = busy(8)
    assert len(crowd(8, *clients)) == 8
    assert [client.heard for client in clients] == [[]] * 8


def test_without_a_limit_all_stay() -> None:
    clients = busy(100)
    assert len(crowd(0, *clients)) == 100
    assert [client.heard for client in clients] == [[]] * 100


def test_the_longest_idle_makes_room() -> None:
    clients = [Client("a"), Client("b", NOW - 5), Client("c", NOW - 9), Client("d", NOW - 1)]
    newcomer = Client("e")
    full = crowd(4, *clients)
    full.enter(newcomer)
    assert [client.heard for client in (*clients, newcomer)] == [[], [], ["closed"], [], []]
    # it counts no more, though it has not gone yet
    assert len(full) == 5
    full.left(clients[2])
    assert set(full.all()) == {clients[0], clients[1], clients[3], newcomer}


def test_many_that_are_idle_leave_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowding, "CLOSED_AT_ONCE", 3)
    clients = [Client(str(each), NOW - 10 - each) for each in range(40)]
    crowd(40, *clients).enter(Client("new"))
    assert [client.name for client in clients if client.heard] == ["37", "38", "39"]


def test_who_finds_nobody_idle_is_turned_away_and_in_the_end_cut_off() -> None:
    clients = [*busy(15), Client("fresh", NOW - 0.9)]
    full, newcomers = crowd(16, *clients), busy(3)
    for newcomer in newcomers:
        full.enter(newcomer)
    refusal = ["503 too_many_connections"]
    assert [client.heard for client in newcomers] == [refusal, refusal, ["aborted"]]
    full.left(newcomers[0])
    full.enter(last := Client("last"))
    # one is still being cut off, so there are as many as may be on their way out
    assert last.heard == ["aborted"]
    assert [client.heard for client in clients] == [[]] * 16


def test_a_look_that_found_nobody_is_not_repeated_at_once() -> None:
    now = NOW
    full: Crowd[Client] = Crowd(1, clock=lambda: now)
    first, second, third = Client("a"), Client("b"), Client("c")
    full.enter(first)
    full.enter(second)
    first.since = NOW - 60
    full.enter(third)
    assert (first.heard, third.heard) == ([], ["aborted"])
    now += crowding.LOOK_SECONDS
    full.left(second)
    full.left(third)
    full.enter(fourth := Client("d"))
    assert (first.heard, fourth.heard) == (["closed"], [])


@pytest.fixture
def descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("descriptors")
def test_the_process_takes_the_descriptors_that_it_may_have() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    assert raise_descriptors() == most
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)
    assert raise_descriptors() == most


@pytest.mark.parametrize(
    ("descriptors", "limit"), [(1024, 320), (20_000, 6645), (1 << 20, MOST_CONNECTIONS), (64, 1), (0, 1)]
)
def test_the_limit_by_descriptors(descriptors: int, limit: int) -> None:
    assert default_limit(descriptors) == limit


@pytest.mark.usefixtures("descriptors")
@pytest.mark.parametrize("asked", [None, 100])
def test_descriptors_are_raised_whoever_says_the_limit(asked: int | None) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    most = raise_descriptors()
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))

    assert connection_limit(asked) == (asked or default_limit(most))
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == most


def test_more_connections_than_descriptors_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (70_000, 70_000))
    assert connection_limit(20_000) == 20_000
    assert caplog.messages == []
    assert connection_limit(30_000) == 30_000
    assert caplog.messages == [
        "30000 connections may need 90064 file descriptors, and the process can have 70000 (ulimit -n): beyond that "
        "requests are answered 503"
    ]
