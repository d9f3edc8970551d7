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

from model.passes import STEPS, other_pin, resting
from model.state import (
    ALIVE,
    ATTEMPTS,
    FOUND,
    FRESH_ENTRY,
    FRESH_MARK,
    MAKE_DIRECTORY,
    MAKE_RECORD,
    MANNED,
    NAMED,
    NONE,
    OLD,
    PINNED,
    PUBLISH,
    TORN,
    TRASH_LIMIT,
    WRITE,
    YOUNG,
    At,
    Collector,
    Pin,
    Rules,
    State,
    Violation,
    without,
)


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
            yield "the EPDDeployment goes", without(s, NAMED if s.pod else NAMED | ALIVE)._replace(epd=0)
        else:
            yield "the EPDDeployment comes", s._replace(epd=1)
        if s.pod:
            pin = Pin.DUE if s.pin else Pin.NONE
            gone = without(s, MANNED if s.epd else MANNED | ALIVE)._replace(
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
            aged = without(s, FRESH_MARK | FRESH_ENTRY)
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
            return s._replace(**{name: resting(s, Collector(At.EMPTY_TRASH))})
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
                yield "reader: pins", other_pin(self._rules, s)._replace(reader=PINNED, pin=Pin.HELD)
        elif s.reader == PINNED:
            yield (
                "reader: reads through its pin and removes it",
                other_pin(self._rules, s)._replace(reader=0, pin=Pin.NONE),
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
        says, s, c = STEPS[c.at](self._rules, s, c)
        yield f"{name}: {says}", s._replace(**{name: resting(s, c)})
