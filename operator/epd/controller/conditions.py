"""Conditions: one finding per type, merged into a list whose transition times only move when a status does.

Pure. Decides nothing about deployments; `status` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from epd.api.names import ConditionType
from epd.api.types import Condition

MESSAGE_MAX_LENGTH: Final = 1024
"""Quoted words are cut here: an Event takes 1,024 bytes (k8s.io/kubernetes pkg/apis/core/validation/events.go), and one
text serves both."""


@dataclass(frozen=True)
class Finding:
    """What one condition says: status True, False or Unknown, a CamelCase reason, a text for people."""

    status: str
    reason: str
    message: str

    @classmethod
    def true(cls, reason: str, message: str) -> Self:
        """The condition holds."""
        return cls("True", str(reason), message)

    @classmethod
    def false(cls, reason: str, message: str) -> Self:
        """The condition does not hold."""
        return cls("False", str(reason), message)

    @classmethod
    def unknown(cls, reason: str, message: str) -> Self:
        """Not known yet."""
        return cls("Unknown", str(reason), message)

    @property
    def ok(self) -> bool:
        """Whether the condition holds."""
        return self.status == "True"


Findings = Mapping[ConditionType, Finding]


def merge(previous: list[Condition], findings: Findings, *, generation: int, now: str) -> list[Condition]:
    """The new list, in the order of `ConditionType`: types without a finding go.

    `lastTransitionTime` is kept while the status is the same, as metav1.Condition demands. `observedGeneration` is in
    each one: `kubectl wait` believes a condition without it.
    """
    before = {condition.type: condition for condition in previous}
    merged = []
    for type_ in ConditionType:
        if (finding := findings.get(type_)) is None:
            continue
        last = before.get(type_)
        merged.append(
            Condition(
                type=type_,
                status=finding.status,
                reason=finding.reason,
                message=shorten(finding.message),
                last_transition_time=last.last_transition_time if last and last.status == finding.status else now,
                observed_generation=generation,
            )
        )
    return merged


def shorten(text: str) -> str:
    """At most `MESSAGE_MAX_LENGTH` bytes of UTF-8, marked where something was cut."""
    raw = text.encode()
    if len(raw) <= MESSAGE_MAX_LENGTH:
        return text
    return raw[: MESSAGE_MAX_LENGTH - 3].decode("utf-8", "ignore") + "..."
