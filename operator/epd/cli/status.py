"""What `kubectl epd status` says: the state of one EPDDeployment, and of what is not well the cause and the cure.

Text from the object alone. Pure; asks no cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from epd.api.meanings import REASONS
from epd.api.names import ConditionType
from epd.api.types import Condition, EPDDeployment, Status

_WELL_WHEN_FALSE: Final = frozenset(
    {ConditionType.RECONCILING, ConditionType.STALLED, ConditionType.UPDATE_AVAILABLE},
)
_PARTS: Final = tuple(
    str(kind).removesuffix("Ready") for kind in ConditionType if kind.endswith("Ready") and kind != ConditionType.READY
)


def describe(epd: EPDDeployment) -> str:
    """Return the state of an object as text, with a new-line at its end."""
    blocks = [_head(epd), _roles(epd.status), _conditions(epd.status), *_not_well(epd.status)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _head(epd: EPDDeployment) -> str:
    status, engine, cache = epd.status, epd.status.engine_version, epd.status.encoder_cache
    rows = [
        (f"{epd.metadata.namespace}/{epd.metadata.name}", f"{status.topology} {status.url}".strip()),
        ("model version", status.model_version),
        ("engine", f"vLLM {engine.version} ({engine.origin})" if engine else ""),
        ("encoder cache", " ".join(filter(None, (cache.claim, cache.phase, cache.capacity))) if cache else ""),
    ]
    lines = [_table([row for row in rows if row[1]] or rows[:1])]
    if status.observed_generation < epd.metadata.generation:
        lines.append(
            "The operator has not seen the latest change of the spec yet; what follows speaks of earlier ones."
        )
    return "\n".join(lines)


def _roles(status: Status) -> str:
    rows = [
        (role.name, f"{role.ready}/{role.desired}", str(role.updated), " ".join(role.model_versions))
        for role in status.roles
    ]
    return _table([("ROLE", "READY", "UPDATED", "MODEL VERSIONS"), *rows]) if rows else ""


def _conditions(status: Status) -> str:
    rows = [(condition.type, str(condition.status), condition.reason) for condition in status.conditions]
    return _table([("CONDITION", "STATUS", "REASON"), *rows])


def _is_well(condition: Condition) -> bool:
    return condition.status == ("False" if condition.type in _WELL_WHEN_FALSE else "True")


def _not_well(status: Status) -> Iterator[str]:
    """The words of each condition that is not as it should be; those that repeat a part's words are left out."""
    said = set[str]()
    for condition in sorted(status.conditions, key=lambda condition: not condition.type.startswith(_PARTS)):
        if _is_well(condition) or condition.message in said:
            continue
        said.add(condition.message)
        words = [condition.message, _meaning(condition.reason)]
        yield "\n".join([f"{condition.type}: {condition.reason}", *(f"  {line}" for line in words if line)])


def _meaning(reason: str) -> str:
    """What a reason means and what to do; in Ready the reason of a part has the part before it."""
    meanings = {str(known): text for known, text in REASONS.items()}
    plain = next((reason.removeprefix(part) for part in _PARTS if reason.removeprefix(part) in meanings), reason)
    return meanings.get(reason, meanings.get(plain, ""))


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
