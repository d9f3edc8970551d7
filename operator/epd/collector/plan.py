"""What `epd-collector plan` prints: victims with reasons, as a table or as JSON. Pure; makes no pass."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from epd.api.collection import VersionReport, VersionState
from epd.api.quantity import bytes_text, duration_text
from epd.collector.inputs import Policy
from epd.collector.policy import InForce
from epd.collector.report import View, report
from epd.collector.result import PassResult, Victim


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be removed now. `victims_left_out` are those beyond what a pass lists."""

    view: View
    victims: tuple[Victim, ...] = ()
    victims_left_out: int = 0
    freed_bytes: int = 0
    entries: int = 0


def rehearsed(in_force: InForce) -> Policy:
    """Return the policy to plan by: as if collection were enabled, and without changing anything."""
    return replace(in_force.policy, enabled=True, dry_run=True)


def plan(view: View, results: Sequence[PassResult]) -> Plan:
    """Put the passes of one dry run together."""
    return Plan(
        view=view,
        victims=tuple(victim for result in results for victim in result.victims),
        victims_left_out=sum(result.victims_left_out for result in results),
        freed_bytes=sum(sum(result.freed.values()) for result in results),
        entries=sum(sum(result.removed.values()) for result in results),
    )


def as_json(given: Plan) -> str:
    """Return the plan as one JSON object; times in seconds, sizes in bytes."""
    document: dict[str, Any] = {
        "victims": [
            {"path": v.path, "reason": v.cause.value, "usedBytes": v.used_bytes, "idleSeconds": v.age}
            for v in given.victims
        ],
        "victimsLeftOut": given.victims_left_out,
        "wouldRemoveEntries": given.entries,
        "wouldFreeBytes": given.freed_bytes,
        "status": report(given.view).model_dump(mode="json", by_alias=True),
    }
    return json.dumps(document, indent=2)


def as_table(given: Plan) -> str:
    """Return the plan for people: what is wrong, versions, victims, the sum."""
    status = report(given.view)
    parts = [f"{trouble.reason}: {trouble.message}\n" for trouble in status.troubles]
    versions = [
        (
            v.name,
            _state(v, given.view),
            v.since or "-",
            str(v.entries),
            bytes_text(v.used_bytes),
            ", ".join(v.users) or "-",
        )
        for v in status.versions
    ]
    if versions:
        parts.append(_columns(("VERSION", "STATE", "SINCE", "ENTRIES", "USED", "USERS"), versions))
    victims = [
        (v.path, v.cause.value, bytes_text(v.used_bytes), "-" if v.age is None else duration_text(v.age))
        for v in given.victims
    ]
    if victims:
        parts.append(_columns(("VICTIM", "REASON", "SIZE", "IDLE"), victims))
    more = f" ({given.victims_left_out} of them not listed)" if given.victims_left_out else ""
    parts.append(
        f"would remove {given.entries} entries{more} and free {bytes_text(given.freed_bytes)}; nothing was changed\n"
        if given.entries
        else "nothing would be removed\n"
    )
    return "\n".join(parts)


def _state(version: VersionReport, view: View) -> str:
    """For people also what is about to be condemned: a plan condemns nothing."""
    answer = view.liveness
    dead = answer is not None and answer.valid and version.name not in answer.live
    return "Unused" if dead and version.state is VersionState.LIVE else version.state.value


def _columns(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    table = [header, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)
    return "\n".join(lines) + "\n"
