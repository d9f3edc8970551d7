"""A pass of a collector in the model of collection, one system call or question after the other."""

from __future__ import annotations

from model.state import (
    ALIVE,
    FRESH_ENTRY,
    FRESH_MARK,
    MANNED,
    NAMED,
    NONE,
    TORN,
    YOUNG,
    At,
    Collector,
    Pin,
    Rules,
    State,
    Violation,
    without,
)


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
        return "removes a pin", other_pin(rules, s)._replace(pin=Pin.NONE), after
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
    s = without(s, FRESH_ENTRY)._replace(directory=0, entry=NONE, temporary=0, trash=s.trash + 1)
    return "renames into the trash", s, after


def _unmark(rules: Rules, s: State, c: Collector) -> tuple[str, State, Collector]:
    return "unmarks", _unmarked(s), Collector(At.EMPTY_TRASH)


def _empty_trash(rules: Rules, s: State, c: Collector) -> tuple[str, State, Collector]:
    return "deletes from the trash", s._replace(trash=max(s.trash - 1, 0)), c


STEPS = {
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


def resting(s: State, c: Collector) -> Collector:
    """With nothing left to delete a pass is over."""
    return Collector() if c.at == At.EMPTY_TRASH and not s.trash else c


def _ghosts(rules: Rules, s: State) -> int:
    alive = ALIVE * (s.epd | s.pod) * (not rules.may_miss_a_handover)
    return NAMED * s.epd | MANNED * s.pod | FRESH_MARK * (s.mark == YOUNG) | alive


def _used(s: State) -> int:
    return FRESH_ENTRY * (s.directory and s.entry == YOUNG)


def _unmarked(s: State) -> State:
    return without(s, FRESH_MARK)._replace(mark=NONE)


def other_pin(rules: Rules, s: State) -> State:
    """A pin comes or goes: what collectors saw has another name, so it says nothing of this one."""
    if rules.sees_pins_before_it_asks:
        for name in "ab":
            c: Collector = getattr(s, name)
            if c.pin:
                s = s._replace(**{name: c._replace(pin=0)})
    return s
