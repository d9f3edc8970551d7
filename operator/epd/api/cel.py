"""CEL for rules on fields, and what rules of several parts of the spec share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Rule:
    """One entry of `x-kubernetes-validations`.

    Attributes:
        rule: CEL expression that is true of valid values.
        message: What to say otherwise; a CEL expression where it starts with `=`.
    """

    rule: str
    message: str

    def schema(self) -> dict[str, str]:
        """Return the entry as the schema has it."""
        if self.message.startswith("="):
            return {"rule": self.rule, "messageExpression": self.message[1:]}
        return {"rule": self.rule, "message": self.message}


def literal(text: str) -> str:
    """CEL of a string."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def literal_map(entries: Mapping[str, str]) -> str:
    """CEL of a map of strings."""
    return "{" + ", ".join(f"{literal(key)}: {literal(value)}" for key, value in entries.items()) + "}"


def both(path: str) -> str:
    """CEL that is true when old and new spec have `path`."""
    parts = path.split(".")
    paths = [".".join(parts[: end + 1]) for end in range(len(parts))]
    return " && ".join(f"has({side}.{part})" for side in ("oldSelf", "self") for part in paths)


def duration(path: str, at_least: str, at_most: str) -> Rule:
    """Bounds of a duration at `path`; the message has them as they are given here."""
    return Rule(
        f"duration(self) >= duration('{at_least}') && duration(self) <= duration('{at_most}')",
        f"{path} must be between {at_least} and {at_most}, such as 90s, 10m or 1h30m",
    )


SUB_PATH: Final = (
    Rule(
        "!self.startsWith('/') && !self.split('/').exists(part, part == '..')",
        "must be a relative path without '..'",
    ),
    Rule(
        # One spelling for one directory: what shares it shares a collector.
        "self == '' || !self.split('/').exists(part, part in ['', '.'])",
        "must have no '.' and no empty part, such as qwen/ec",
    ),
)
"""On a path in a volume."""
