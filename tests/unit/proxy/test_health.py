from __future__ import annotations

from dataclasses import replace

import pytest

from epd.api.names import Role
from epd.proxy.health import Health, State
from epd.proxy.pods import Member, Members
from epd.proxy.transport import Cause
from unit.clocks import Clock

E0, E1, E2, E3 = (
    Member(name=f"e{n}", role=Role.ENCODE, pairing="p", address=f"http://e{n}", ready=True) for n in range(4)
)
D0 = Member(name="d0", role=Role.PREFILL_DECODE, pairing="p", address="http://d0", ready=True)


class Watched:
    """A health with its clock, members, and the roles of what was put out."""

    def __init__(self, *members: Member) -> None:
        self.clock, self.members = Clock(1000.0), Members()
        self.members.replace(members)
        self.ejected: list[Role] = []
        self.health = Health(self.members, on_ejected=self.ejected.append, clock=self.clock)

    def do(self, step: str) -> None:
        """Take one step: `sent`, `ok`, the name of a cause, or seconds that go by."""
        if step == "sent":
            self.health.sent("e0")
        elif step == "ok":
            self.health.succeeded("e0")
        elif step in set(Cause):
            self.health.failed("e0", Cause(step))
        else:
            self.clock.now += float(step)


COURSES: dict[str, list[tuple[str, str]]] = {
    # what happens, what is known of the engine afterwards, and whether it may get a request (*)
    "a refusal puts it out at once": [("refused", "ejected")],
    "two broken connections in a row": [("disconnected", "healthy*"), ("disconnected", "ejected")],
    "two of any kind": [("protocol", "healthy*"), ("timeout", "ejected")],
    "a success in between": [("disconnected", "healthy*"), ("ok", "healthy*"), ("disconnected", "healthy*")],
    "errors: five in a row": [
        *[("status", "healthy*")] * 2,
        *[("stream-error", "healthy*")] * 2,
        ("status", "ejected"),
    ],
    "what the proxy itself lacked": [*[("local", "healthy*")] * 20, ("disconnected", "healthy*")],
    "what the proxy itself lacked for a trial": [
        ("refused", "ejected"),
        ("1", "half-open*"),
        ("sent", "half-open"),
        ("local", "half-open"),
        ("1", "half-open*"),
        ("sent", "half-open"),
        ("ok", "healthy*"),
    ],
    "out for a second": [("refused", "ejected"), ("0.999", "ejected"), ("0.001", "half-open*")],
    "one trial at a time": [
        ("refused", "ejected"),
        ("1", "half-open*"),
        ("sent", "half-open"),
        ("0.999", "half-open"),
        # the first one is still at it, which may mean nothing
        ("0.001", "half-open*"),
    ],
    "a trial that does well": [("refused", "ejected"), ("1", "half-open*"), ("sent", "half-open"), ("ok", "healthy*")],
    "the whole course is forgotten then": [
        ("refused", "ejected"),
        ("1", "half-open*"),
        ("sent", "half-open"),
        ("refused", "ejected"),
        ("2", "half-open*"),
        ("sent", "half-open"),
        ("ok", "healthy*"),
        ("disconnected", "healthy*"),
        ("refused", "ejected"),
        ("1", "half-open*"),
    ],
    "twice as long each time, up to 30 s": [
        ("refused", "ejected"),
        *[
            step
            for seconds, following in ((1, 2), (2, 4), (4, 8), (8, 16), (16, 30), (30, 30))
            for step in (
                (str(seconds), "half-open*"),
                ("sent", "half-open"),
                ("disconnected", "ejected"),
                (str(following - 0.001), "ejected"),
                ("-" + str(following - 0.001), "ejected"),
            )
        ],
    ],
    "what fails meanwhile says nothing new": [
        ("refused", "ejected"),
        *[("disconnected", "ejected")] * 20,
        ("1", "half-open*"),
        # of before
        ("disconnected", "half-open*"),
    ],
}


@pytest.mark.parametrize("course", COURSES.values(), ids=COURSES.keys())
def test_the_course_of_an_engine(course: list[tuple[str, str]]) -> None:
    watched = Watched(E0)
    assert watched.health.calm()
    seen = []
    for step, _ in course:
        watched.do(step)
        seen.append((step, watched.health.state("e0") + "*" * watched.health.admits("e0")))
    assert seen == course
    assert watched.health.state("d0") == State.HEALTHY


def test_each_ejection_is_told() -> None:
    watched = Watched(E0, D0)
    for step in ("refused", "refused", "1", "sent", "refused"):
        watched.do(step)
    watched.health.failed("d0", Cause.REFUSED)
    watched.health.failed("gone", Cause.REFUSED)
    assert watched.ejected == [Role.ENCODE, Role.ENCODE, Role.PREFILL_DECODE]


HALVES = [
    # encoders of the pairing, the cause of six failures of each, one engine after the other, and who is out then
    (1, "status", ["e0"]),
    (2, "status", ["e0"]),
    (2, "stream-error", ["e0"]),
    (3, "status", ["e0"]),
    (4, "status", ["e0", "e1"]),
    # no request is the reason
    (4, "refused", ["e0", "e1", "e2", "e3"]),
    (4, "disconnected", ["e0", "e1", "e2", "e3"]),
    (4, "timeout", ["e0", "e1", "e2", "e3"]),
    (4, "local", []),
]


def out(watched: Watched) -> list[str]:
    return [one.name for one in watched.members.all() if watched.health.state(one.name) is not State.HEALTHY]


def fail(watched: Watched, name: str, cause: str) -> None:
    for _ in range(6):
        watched.health.failed(name, Cause(cause))


@pytest.mark.parametrize(("engines", "cause", "expected"), HALVES)
def test_what_may_be_of_requests_puts_out_half(engines: int, cause: str, expected: list[str]) -> None:
    among = [E0, E1, E2, E3][:engines]
    others = [replace(E0, name="o0", pairing="old"), replace(E0, name="o1", pairing="old"), D0]
    watched = Watched(*among, *others)
    for one in among:
        fail(watched, one.name, cause)
    assert out(watched) == expected
    assert watched.ejected == [Role.ENCODE] * len(expected)
    # of another pairing as many as ever
    fail(watched, "o1", "refused")
    assert out(watched) == [*expected, "o1"]


def test_engines_that_are_gone_count_for_the_half_that_stays() -> None:
    watched = Watched(E0, E1, E2, E3)
    for name in ("e0", "e1"):
        watched.health.failed(name, Cause.REFUSED)
    fail(watched, "e2", "status")
    assert out(watched) == ["e0", "e1"]
    # one more success, and there is room for one more
    watched.health.succeeded("e0")
    watched.health.failed("e2", Cause.STATUS)
    assert out(watched) == ["e1", "e2"]


def test_an_engine_that_fails_its_trial_stays_out_however_many_are() -> None:
    watched = Watched(E0, E1)
    for name in ("e0", "e1"):
        watched.health.failed(name, Cause.REFUSED)
    watched.do("1")
    watched.do("sent")
    watched.do("status")
    assert watched.health.state("e0") is State.EJECTED
    watched.do("2")
    assert watched.health.state("e0") is State.HALF_OPEN


def test_a_pod_that_comes_back_has_a_clean_record_and_starts_slowly() -> None:
    watched = Watched(E0, D0)
    watched.do("refused")
    assert not watched.health.calm()
    watched.members.replace([replace(E0, ready=False), D0])
    assert watched.health.calm()
    watched.members.replace([E0, D0])
    assert not watched.health.calm()
    assert (watched.health.state("e0"), watched.health.shares()) == (State.HEALTHY, {"e0": 0.1})


def test_the_share_of_an_engine_grows() -> None:
    watched = Watched(D0)
    # it was there before this proxy was
    assert watched.health.calm()
    watched.members.replace([D0, E0])
    shares = []
    for _ in range(6):
        assert not watched.health.calm()
        shares.append(watched.health.shares().get("e0"))
        watched.clock.now += 2
    assert shares == [0.1, 0.2, 0.4, 0.6, 0.8, None]
    assert watched.health.calm()


def test_the_first_list_is_no_start_however_late_it_comes() -> None:
    members = Members()
    health = Health(members, on_ejected=[].append)
    assert health.calm()
    members.replace([D0, E0])
    assert (health.calm(), health.shares()) == (True, {})
