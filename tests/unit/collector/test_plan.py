from __future__ import annotations

import dataclasses
import json

from epd.collector.plan import Plan, as_json, as_table, plan, rehearsed
from epd.collector.policy import NOTHING, InForce
from epd.collector.result import Cause, PassResult, State, VersionFacts, Victim
from epd.collector.tally import Tally
from unit.collector.views import POLICY, view

OLD = Victim(path="v/0a/0ab.safetensors", cause=Cause.TTL, used_bytes=4096, age=90_000)
DEAD = Victim(path="w", cause=Cause.DEAD_VERSION, used_bytes=3 << 30, age=None)
FIRST = PassResult(more=True, victims=(OLD,), removed={Cause.TTL: 2}, freed={Cause.TTL: 8192}, victims_left_out=1)
LAST = PassResult(
    victims=(DEAD,),
    removed={Cause.DEAD_VERSION: 9},
    freed={Cause.DEAD_VERSION: 3 << 30},
    versions=(
        VersionFacts(name="v", state=State.LIVE, entries=7, used_bytes=45 << 20, users=("a", "b")),
        VersionFacts(name="w", state=State.CONDEMNED, entries=9, used_bytes=3 << 30, since=9),
        VersionFacts(name="x", state=State.LIVE),
    ),
)


def made(*results: PassResult) -> Plan:
    return plan(view(tally=Tally(latest=results[-1])), results)


def test_a_plan_is_made_as_if_collection_were_enabled_and_changes_nothing() -> None:
    assert rehearsed(InForce()) == dataclasses.replace(NOTHING, enabled=True, dry_run=True)
    assert rehearsed(InForce(policy=POLICY)) == dataclasses.replace(POLICY, dry_run=True)


def test_as_a_table() -> None:
    assert as_table(made(FIRST, LAST)) == (
        "VERSION   STATE       SINCE                  ENTRIES   USED   USERS\n"
        "v         Live        -                      7         45Mi   a, b\n"
        "w         Condemned   1970-01-01T00:00:09Z   9         3Gi    -\n"
        "x         Unused      -                      0         0      -\n"
        "\n"
        "VICTIM                 REASON         SIZE   IDLE\n"
        "v/0a/0ab.safetensors   ttl            4Ki    25h\n"
        "w                      dead-version   3Gi    -\n"
        "\n"
        "would remove 11 entries (1 of them not listed) and free 3Gi; nothing was changed\n"
    )


def test_nothing_to_remove() -> None:
    assert as_table(made(PassResult())) == "nothing would be removed\n"


def test_what_is_wrong_comes_first() -> None:
    given = plan(view(tally=Tally(), failure="x"), [PassResult()])
    assert as_table(given).startswith("CollectionFailed: a pass broke off: x.")


def test_as_json() -> None:
    document = json.loads(as_json(made(FIRST, LAST)))
    status = document.pop("status")
    assert document == {
        "victims": [
            {"path": "v/0a/0ab.safetensors", "reason": "ttl", "usedBytes": 4096, "idleSeconds": 90_000},
            {"path": "w", "reason": "dead-version", "usedBytes": 3 << 30, "idleSeconds": None},
        ],
        "victimsLeftOut": 1,
        "wouldRemoveEntries": 11,
        "wouldFreeBytes": 8192 + (3 << 30),
    }
    assert [version["name"] for version in status["versions"]] == ["v", "w", "x"]
