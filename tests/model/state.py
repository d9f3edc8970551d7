"""What the model of collection consists of: all that may be on the volume and in its processes, and what they mind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NONE, YOUNG, OLD, TORN = 0, 1, 2, 3
"""Ages of marks and entries; TORN is an entry that is not whole yet, under its final name."""


class Pin:
    """The reader's hard link: whose it is, and what speaks for removing it. Plain numbers: states are hashed a lot."""

    NONE = 0
    HELD = 1
    LEFT = 2
    """Its reader died, its pod lives, and its heartbeat is young."""
    DUE = 3
    """Its pod is gone, or its heartbeat is old."""


class At:
    """Where a collector is in its pass, by what it does next."""

    REST = 0
    LIST_PODS = 1
    REAP = 2
    DECIDE = 3
    CONDEMN = 4
    ENTRIES = 5
    ASK_AGAIN = 6
    LIST_PODS_AGAIN = 7
    MARK_AGAIN = 8
    RENAME = 9
    UNMARK = 10
    EMPTY_TRASH = 11


class Collector(NamedTuple):
    """One collector. Its memory is lost with its process.

    Attributes:
        live: Whether an EPDDeployment, later also a pod, named the version in the last answer.
        pin: Whether it saw the pin before it asked; after the list of pods, whether that lacks the pin's pod.
        ghost: What an observer knows of a removal under way, and the collector does not (GHOSTS).
    """

    at: int = At.REST
    live: int = 0
    pin: int = 0
    ghost: int = 0


NAMED, MANNED, FRESH_MARK, FRESH_ENTRY, ALIVE = 1, 2, 4, 8, 16
"""GHOSTS, each without interruption. Since before the last question, the version is named by an EPDDeployment; has a
pod; has a mark without grace. Since before its entries were looked at, one of them was used within the grace. Since
before the last question, it has lived by one or the other (kept only where a handover may not be missed)."""


class State(NamedTuple):
    """Everything. `writer` counts its step and its attempts, `reader` its step; both are 0 at rest."""

    epd: int = 0
    pod: int = 0
    directory: int = 0
    record: int = 0
    mark: int = NONE
    entry: int = NONE
    temporary: int = 0
    trash: int = 0
    """Directories that wait for deletion, which touches nothing else and so is one step each."""
    pin: int = Pin.NONE
    writer: int = 0
    attempt: int = 0
    reader: int = 0
    a: Collector = Collector()
    b: Collector = Collector()


WRITE, MAKE_RECORD, MAKE_DIRECTORY, PUBLISH = 1, 2, 3, 4
FOUND, PINNED = 1, 2
ATTEMPTS = 2
TRASH_LIMIT = 2

STARTS = (State(), State(directory=1, entry=OLD))
"""An empty volume, and one on which a stranger's directory has our version's name, without a record."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the processes take care of. Each one off is a mutation that the search must catch."""

    record_needed: bool = True
    grace: bool = True
    asks_again: bool = True
    failed_answers_prove_nothing: bool = True
    looks_at_the_mark_again: bool = True
    spares_used_entries: bool = True
    unmarks_what_lives: bool = True
    sees_pins_before_it_asks: bool = True
    reader_takes_absence_for_a_miss: bool = True
    writer_retries: bool = True
    writer_renames: bool = True
    may_miss_a_handover: bool = True
    """No care but a limit: a version whose pod goes just after its EPDDeployment came back is met in neither list."""
    may_miss_a_visit: bool = True
    """No care but a limit: what comes and goes between the look at the entries and the last question is not noticed."""


class Violation(Exception):  # noqa: N818 - what the search is for
    """A property does not hold; its name is the message."""


def without(s: State, ghosts: int) -> State:
    """What an observer knew of removals under way is no longer so."""
    a, b = s.a, s.b
    if a.ghost & ghosts:
        s = s._replace(a=a._replace(ghost=a.ghost & ~ghosts))
    if b.ghost & ghosts:
        s = s._replace(b=b._replace(ghost=b.ghost & ~ghosts))
    return s
