from __future__ import annotations

import pytest

from epd.api.names import Role
from epd.proxy.health import Health
from epd.proxy.pods import Member, Members
from epd.proxy.rotation import Rotation
from epd.proxy.routing import InFlight
from epd.proxy.transport import Cause
from unit.proxy.engines import member


def rotation(*members: Member, bound: int = 0) -> Rotation:
    known = Members()
    known.replace(members)
    health = Health(known, on_ejected=[].append, clock=lambda: 1000.0)
    return Rotation(members=known, load=InFlight(), health=health, bound=bound)


def name(found: Member | None) -> str | None:
    return found and found.name


def test_an_engine_is_chosen_by_pairing_and_encoders() -> None:
    r = rotation(member("e0", "new"), member("d0", "new"), member("d1", "old"), member("d2", "old", ready=False))
    r.load.begin("d0")
    chosen = [
        r.prefill("r"),
        r.prefill("r", wants_encoders=True),
        r.prefill("r", pairing="new"),
        r.prefill("r", avoided="old"),
        r.prefill("r", excluded={"d1"}),
        r.prefill("r", pairing="new", excluded={"d0"}),
    ]
    assert [name(found) for found in chosen] == ["d1", "d0", "d0", "d0", "d0", None]


def test_only_engines_with_room() -> None:
    r = rotation(member("d0"), member("d1"), member("d2", "q"), member("e0"), bound=2)
    for busy, amount in (("d0", 2), ("d1", 1), ("d2", 1)):
        r.load.begin(busy, amount)
    assert name(r.prefill("r", bounded=True, pairing="p")) == "d1"
    r.load.begin("d1")
    assert name(r.prefill("r", bounded=True, pairing="p")) is None
    # without an encoder, but with room
    assert name(r.prefill("r", bounded=True, wants_encoders=True)) == "d2"
    assert name(r.prefill("r", wants_encoders=True)) in ("d0", "d1")
    r.load.begin("d2")
    assert name(r.prefill("r", bounded=True)) is None
    assert name(rotation(member("d0")).prefill("r", bounded=True)) == "d0"


OUT = [
    # engines that are out, what is asked of d0 and d1 of p, d2 of q (d1 is busiest), and who gets it
    (("d0",), {"pairing": "p"}, "d1"),
    (("d0", "d2"), {}, "d1"),
    # the last one of its pairing is never out, though there are others
    (("d2",), {"pairing": "q"}, "d2"),
    (("d0", "d1"), {}, "d2"),
    (("d0", "d1"), {"pairing": "p"}, "d0"),
    (("d1", "d0"), {"pairing": "p"}, "d0"),
    # all are out: whoever has least to do
    (("d0", "d1", "d2"), {"excluded": ("d0",)}, "d2"),
    (("d0", "d1", "d2"), {"excluded": ("d0", "d2")}, "d1"),
    (("d0", "d1", "d2"), {"excluded": ("d0", "d1", "d2")}, None),
]


@pytest.mark.parametrize(("out", "asked", "expected"), OUT)
def test_engines_that_are_out_come_last(out: tuple[str, ...], asked: dict[str, object], expected: str | None) -> None:
    r = rotation(member("d0"), member("d1"), member("d2", "q"))
    r.load.begin("d1", 5)
    for engine in out:
        r.health.failed(engine, Cause.REFUSED)
    assert name(r.prefill("r", **asked)) == expected  # type: ignore[arg-type] - of a table


@pytest.mark.parametrize("cause", [Cause.REFUSED, Cause.STATUS])
@pytest.mark.parametrize("role", ["d", "e"])
def test_where_all_are_out_all_take_their_share(role: str, cause: Cause) -> None:
    r = rotation(*(member(f"{role}{number}") for number in range(4)))
    for number in range(4):
        r.health.failed(f"{role}{number}", Cause.REFUSED)
        for _ in range(5):
            r.health.failed(f"{role}{number}", cause)
    for number in range(40):
        key = f"key{number}"
        chosen = r.prefill(key) if role == "d" else r.encoder(key, r.encoders("p"))
        assert chosen is not None
        r.load.begin(chosen.name)
    assert sorted(r.load.counts()) == [f"{role}{number}" for number in range(4)]
    # a quarter each, or what bounded load allows of one
    assert max(r.load.counts().values()) <= (10 if role == "d" else 13)


def test_a_bad_request_that_is_repeated_leaves_half_to_others() -> None:
    r = rotation(*(member(f"d{number}") for number in range(4)))
    for attempt in range(100):
        chosen = r.prefill(f"bad{attempt}")
        assert chosen is not None
        r.health.failed(chosen.name, Cause.STATUS)
    found = {name(r.prefill(f"good{number}")) for number in range(100)}
    assert len(found) == 2


def test_the_one_whose_time_is_over_comes_first() -> None:
    now = [1000.0]
    known = Members()
    known.replace([member("e0"), member("e1")])
    health = Health(known, on_ejected=[].append, clock=lambda: now[0])
    r = Rotation(members=known, load=InFlight(), health=health, bound=0)
    for engine in ("e1", "e0"):
        health.failed(engine, Cause.REFUSED)
        now[0] += 0.5
    assert [m.name for m in r.encoders("p")] == ["e1"]
    assert [m.name for m in r.encoders("p", excluded="e1")] == ["e0"]


def test_encoders() -> None:
    r = rotation(member("e0"), member("e1"), member("e2", "q"), member("d0"))
    assert [m.name for m in r.encoders("p")] == ["e0", "e1"]
    assert [m.name for m in r.encoders("p", excluded="e0")] == ["e1"]
    assert list(r.encoders("z")) == []
    r.health.failed("e0", Cause.REFUSED)
    assert [m.name for m in r.encoders("p")] == ["e1"]
    # of the other pairing it is the only one
    r.health.failed("e2", Cause.REFUSED)
    assert [m.name for m in r.encoders("q")] == ["e2"]
    assert r.encoder("k", r.encoders("p")).name == "e1"


def test_a_new_encoder_gets_a_lesser_share() -> None:
    r = rotation(member("e0"))
    r.members.replace([member("e0"), member("e1")])
    for number in range(200):
        r.load.begin(r.encoder(f"key{number}", r.encoders("p")).name)
    # a tenth against a whole, and the quarter above it that bounded load allows
    assert r.load["e1"] <= 23


def test_a_new_engine_gets_a_lesser_share_of_requests() -> None:
    r = rotation(member("d0"))
    r.members.replace([member("d0"), member("d1")])
    for number in range(55):
        chosen = r.prefill(f"r{number}")
        assert chosen is not None
        r.load.begin(chosen.name)
    assert r.load.counts() == {"d0": 50, "d1": 5}


def test_who_prefills_and_who_answers() -> None:
    known = Members()
    health = Health(known, on_ejected=[].append, clock=lambda: 1000.0)
    r = Rotation(members=known, load=InFlight(), health=health, bound=0, answering=Role.DECODE)
    found = []
    for members in (["last0"], ["first0"], ["d0"], ["first0", "first1", "last0", "d0"]):
        known.replace([member(one) for one in members])
        found.append((r.serves(), name(r.prefill("r"))))
    assert found == [(False, "last0"), (False, None), (False, None), (True, "last0")]
    r.load.begin("first0")
    asked = [r.prefiller("r", "p"), r.prefiller("r", "p", excluded=("first1",)), r.prefiller("r", "q")]
    assert [name(one) for one in asked] == ["first1", "first0", None]
    health.failed("first1", Cause.REFUSED)
    assert name(r.prefiller("r", "p")) == "first0"
    assert rotation(member("d0")).serves()
