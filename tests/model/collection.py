"""A small model of how a version's directory is collected, for exhaustive search: one version with one entry, two
collectors, one engine pod with a writer and a reader, one EPDDeployment that comes and goes, and a clock.

Each transition is one system call, one answer of the API server, or one thing that happens around them. Between any two
everything else may happen, a process may die, and a question may fail. `Rules` says what the processes mind; with all
of them on, it is the protocol of `epd.collector` and `epd.connector`. Bounds: two dead directories at a time, two new
attempts of a writer, one pin at a time. Ages are young or old, and all of them may pass the border at any moment.
Eviction from a live version is left out: to a reader such an entry is missing, as those of a renamed directory are.
"""

from __future__ import annotations

from collections.abc import Iterator
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


class Model:
    """The transitions under `rules`; `collectors` of the two take part."""

    def __init__(self, rules: Rules, *, collectors: int = 2) -> None:
        self._rules = rules
        self._collectors = collectors

    def canonical(self, s: State) -> State:
        """Collectors are alike, so states that differ in their names are one."""
        return s._replace(a=s.b, b=s.a) if s.b < s.a and self._collectors == 2 else s

    def transitions(self, s: State) -> Iterator[tuple[str, State]]:
        """Everything that may happen next, faults among it."""
        yield from self.around(s)
        yield from self.faults(s)
        yield from self.engine(s)
        yield from self.collecting(s)

    # what happens around

    def around(self, s: State) -> Iterator[tuple[str, State]]:
        """Time passes, EPDDeployment and pod come and go."""
        yield from self.time(s)
        if s.epd:
            yield "the EPDDeployment goes", _without(s, NAMED if s.pod else NAMED | ALIVE)._replace(epd=0)
        else:
            yield "the EPDDeployment comes", s._replace(epd=1)
        if s.pod:
            pin = Pin.DUE if s.pin else Pin.NONE
            gone = _without(s, MANNED if s.epd else MANNED | ALIVE)._replace(
                pod=0, pin=pin, writer=0, attempt=0, temporary=0, reader=0
            )
            yield "the pod goes", gone._replace(entry=NONE if s.entry == TORN else s.entry)
        elif s.epd:
            yield "the pod comes", s._replace(pod=1)

    def time(self, s: State) -> Iterator[tuple[str, State]]:
        """What is young becomes old; a reader that lives keeps its heartbeat young."""
        mark, entry = (OLD if age == YOUNG else age for age in (s.mark, s.entry))
        pin = Pin.DUE if s.pin == Pin.LEFT else s.pin
        if (mark, entry, pin) != (s.mark, s.entry, s.pin):
            aged = _without(s, FRESH_MARK | FRESH_ENTRY)
            yield "the grace passes", aged._replace(mark=mark, entry=entry, pin=pin)

    def faults(self, s: State) -> Iterator[tuple[str, State]]:
        """Processes die, questions fail."""
        if s.writer:
            torn = NONE if s.entry == TORN else s.entry
            yield "the writer dies", s._replace(writer=0, attempt=0, temporary=0, entry=torn)
        if s.reader:
            pin = Pin.LEFT if s.pin == Pin.HELD else s.pin
            yield "the reader dies", s._replace(reader=0, pin=pin)
        for name in "ab"[: self._collectors]:
            c: Collector = getattr(s, name)
            if c.at != At.REST:
                yield f"{name} dies", s._replace(**{name: Collector()})
            if c.at in (At.REST, At.LIST_PODS, At.ASK_AGAIN, At.LIST_PODS_AGAIN):
                yield f"{name}: the question fails", self._failed(s, name, c)

    def _failed(self, s: State, name: str, c: Collector) -> State:
        if self._rules.failed_answers_prove_nothing:
            return s._replace(**{name: _resting(s, Collector(At.EMPTY_TRASH))})
        believed = {
            At.REST: Collector(At.LIST_PODS),
            At.LIST_PODS: Collector(At.DECIDE, c.live),
            At.ASK_AGAIN: c._replace(at=At.LIST_PODS_AGAIN, live=0),
            At.LIST_PODS_AGAIN: c._replace(at=At.UNMARK if c.live else At.MARK_AGAIN, live=0),
        }
        return s._replace(**{name: believed[c.at]})

    # the engine

    def engine(self, s: State) -> Iterator[tuple[str, State]]:
        """One system call of the writer or the reader."""
        if not s.pod:
            return
        if s.entry == OLD:
            yield "the entry is stamped", s._replace(entry=YOUNG)
        yield from self._write(s)
        yield from self._read(s)

    def _write(self, s: State) -> Iterator[tuple[str, State]]:
        there = s.directory == 1
        if s.writer == 0 and s.entry == NONE:
            yield "writer: begins", s._replace(writer=WRITE if there else MAKE_RECORD)
        elif s.writer == WRITE and not self._rules.writer_renames:
            yield "writer: writes", s._replace(writer=PUBLISH, entry=TORN) if there else self._again(s)
        elif s.writer == WRITE:
            yield "writer: writes", s._replace(writer=PUBLISH, temporary=1) if there else self._again(s)
        elif s.writer == MAKE_RECORD:
            yield "writer: makes the record", s._replace(writer=MAKE_DIRECTORY, record=1)
        elif s.writer == MAKE_DIRECTORY and s.trash < TRASH_LIMIT:
            yield "writer: makes the directory", s._replace(writer=WRITE, directory=1)
        elif s.writer == PUBLISH and (s.temporary or s.entry == TORN):
            yield "writer: publishes", s._replace(writer=0, attempt=0, temporary=0, entry=YOUNG)
        elif s.writer == PUBLISH:
            yield "writer: can't publish", self._again(s)

    def _again(self, s: State) -> State:
        """ENOENT: make everything anew, a few times; then the failure is counted."""
        if not self._rules.writer_retries:
            raise Violation("a writer ends in an entry or a counted failure")
        if s.attempt == ATTEMPTS:
            return s._replace(writer=0, attempt=0)
        return s._replace(writer=MAKE_RECORD, attempt=s.attempt + 1)

    def _read(self, s: State) -> Iterator[tuple[str, State]]:
        if s.reader == 0 and s.entry:
            yield "reader: there is an entry", s._replace(reader=FOUND)
        elif s.reader == FOUND:
            if s.entry == NONE and not self._rules.reader_takes_absence_for_a_miss:
                raise Violation("a reader gets the whole content or a miss")
            yield "reader: opens and copies", self._copied(s)
            if s.entry and s.pin == Pin.NONE:
                yield "reader: pins", _other_pin(self._rules, s)._replace(reader=PINNED, pin=Pin.HELD)
        elif s.reader == PINNED:
            yield (
                "reader: reads through its pin and removes it",
                _other_pin(self._rules, s)._replace(reader=0, pin=Pin.NONE),
            )

    def _copied(self, s: State) -> State:
        if s.entry == TORN:
            raise Violation("a reader gets the whole content or a miss")
        return s._replace(reader=0)

    # the collectors

    def collecting(self, s: State) -> Iterator[tuple[str, State]]:
        """One system call or question of a collector."""
        for name in "ab"[: self._collectors]:
            yield from self.step(s, name)

    def step(self, s: State, name: str) -> Iterator[tuple[str, State]]:
        """The next step of one collector; there is always one."""
        c: Collector = getattr(s, name)
        says, s, c = _STEPS[c.at](self._rules, s, c)
        yield f"{name}: {says}", s._replace(**{name: _resting(s, c)})


def _rest(rules: Rules, s: State, c: Collector) -> tuple[str, State, Collector]:
    seen = int(s.pin != Pin.NONE or not rules.sees_pins_before_it_asks)
    return "looks at pins, lists EPDDeployments", s, Collector(At.LIST_PODS, s.epd, seen)


def _list_pods(rules: Rules, s: State, c: Collector) -> tuple[str, State, Collector]:
    absent = c.pin & (1 - s.pod)
    concerned = (absent and s.pin) or s.pin == Pin.DUE or not rules.sees_pins_before_it_asks
    return "lists pods", s, Collector(At.REAP if concerned else At.DECIDE, c.live | s.pod, absent if concerned else 0)


def _reap(rules: Rules, s: State, c: Collector) -> tuple[str, State, Collector]:
    after = Collector(At.DECIDE, c.live)
    if s.pin == Pin.DUE or (s.pin and c.pin):
        if s.pin == Pin.HELD:
            raise Violation("what a living reader pinned stays")
        return "removes a pin", _other_pin(rules, s)._replace(pin=Pin.NONE), after
    return "leaves pins alone", s, after


def _decide(rules: Rules, s: State, c: Collector) -> tuple[str, State, Collector]:
    if c.live:
        if rules.unmarks_what_lives and s.mark:
            return "unmarks, since it lives", _unmarked(s), Collector(At.EMPTY_TRASH)
        return "leaves what lives", s, Collector(At.EMPTY_TRASH)
    if rules.record_needed and not s.record:
        return "leaves what has no record", s, Collector(At.EMPTY_TRASH)
    if not s.directory:
        return "finds no directory", s, Collector(At.UNMARK if s.mark else At.EMPTY_TRASH)
    if s.mark == NONE:
        return "is to condemn", s, Collector(At.CONDEMN)
    if s.mark == YOUNG and rules.grace:
        return "lets the grace pass", s, Collector(At.EMPTY_TRASH)
    return "finds it due", s, Collector(At.ENTRIES, ghost=_ghosts(rules, s) | _used(s))


def _condemn(rules: Rules, s: State, c: Collector) -> tuple[str, State, Collector]:
    return "condemns", s._replace(mark=s.mark or YOUNG), Collector(At.EMPTY_TRASH)


def _entries(rules: Rules, s: State, c: Collector) -> tuple[str, State, Collector]:
    if rules.spares_used_entries and s.directory and s.entry in (YOUNG, TORN):
        return "finds a used entry", s, Collector(At.EMPTY_TRASH)
    return "finds no used entry", s, c._replace(at=At.ASK_AGAIN if rules.asks_again else At.MARK_AGAIN)


def _ask_again(rules: Rules, s: State, c: Collector) -> tuple[str, State, Collector]:
    used = c.ghost & FRESH_ENTRY if rules.may_miss_a_visit else _used(s)
    return "lists EPDDeployments again", s, Collector(At.LIST_PODS_AGAIN, s.epd, ghost=_ghosts(rules, s) | used)


def _list_pods_again(rules: Rules, s: State, c: Collector) -> tuple[str, State, Collector]:
    if c.live | s.pod:
        return "lists pods again: it lives", s, Collector(At.UNMARK)
    return "lists pods again: it is dead", s, c._replace(at=At.MARK_AGAIN)


def _mark_again(rules: Rules, s: State, c: Collector) -> tuple[str, State, Collector]:
    if rules.looks_at_the_mark_again and (s.mark == NONE or (s.mark == YOUNG and rules.grace)):
        return "finds the mark renewed", s, Collector(At.EMPTY_TRASH)
    return "finds the mark unchanged", s, c._replace(at=At.RENAME)


_DECISIONS = {
    NAMED: "what is named since before the last question is not removed",
    MANNED: "what has a pod since before the last question is not removed",
    FRESH_MARK: "what was condemned within the grace before the last question is not removed",
    FRESH_ENTRY: "what was used within the grace before it was looked at is not removed",
    ALIVE: "what lives without interruption since before the last question is not removed",
}


def _rename(rules: Rules, s: State, c: Collector) -> tuple[str, State, Collector]:
    after = Collector(At.UNMARK)
    if not s.directory:
        return "finds nothing to rename", s, after
    if not s.record:
        raise Violation("what has no record is not removed")
    for ghost, says in _DECISIONS.items():
        if c.ghost & ghost:
            raise Violation(says)
    s = _without(s, FRESH_ENTRY)._replace(directory=0, entry=NONE, temporary=0, trash=s.trash + 1)
    return "renames into the trash", s, after


def _unmark(rules: Rules, s: State, c: Collector) -> tuple[str, State, Collector]:
    return "unmarks", _unmarked(s), Collector(At.EMPTY_TRASH)


def _empty_trash(rules: Rules, s: State, c: Collector) -> tuple[str, State, Collector]:
    return "deletes from the trash", s._replace(trash=max(s.trash - 1, 0)), c


_STEPS = {
    At.REST: _rest,
    At.LIST_PODS: _list_pods,
    At.REAP: _reap,
    At.DECIDE: _decide,
    At.CONDEMN: _condemn,
    At.ENTRIES: _entries,
    At.ASK_AGAIN: _ask_again,
    At.LIST_PODS_AGAIN: _list_pods_again,
    At.MARK_AGAIN: _mark_again,
    At.RENAME: _rename,
    At.UNMARK: _unmark,
    At.EMPTY_TRASH: _empty_trash,
}


def _resting(s: State, c: Collector) -> Collector:
    """With nothing left to delete a pass is over."""
    return Collector() if c.at == At.EMPTY_TRASH and not s.trash else c


def _ghosts(rules: Rules, s: State) -> int:
    alive = ALIVE * (s.epd | s.pod) * (not rules.may_miss_a_handover)
    return NAMED * s.epd | MANNED * s.pod | FRESH_MARK * (s.mark == YOUNG) | alive


def _used(s: State) -> int:
    return FRESH_ENTRY * (s.directory and s.entry == YOUNG)


def _without(s: State, ghosts: int) -> State:
    """What an observer knew of removals under way is no longer so."""
    a, b = s.a, s.b
    if a.ghost & ghosts:
        s = s._replace(a=a._replace(ghost=a.ghost & ~ghosts))
    if b.ghost & ghosts:
        s = s._replace(b=b._replace(ghost=b.ghost & ~ghosts))
    return s


def _unmarked(s: State) -> State:
    return _without(s, FRESH_MARK)._replace(mark=NONE)


def _other_pin(rules: Rules, s: State) -> State:
    """A pin comes or goes: what collectors saw has another name, so it says nothing of this one."""
    if rules.sees_pins_before_it_asks:
        for name in "ab":
            c: Collector = getattr(s, name)
            if c.pin:
                s = s._replace(**{name: c._replace(pin=0)})
    return s
