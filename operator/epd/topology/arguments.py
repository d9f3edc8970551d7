"""Command-line arguments in one spelling, as vLLM's parser reads them. Pure; judges no flag.

Source: `vllm/utils/argparse_utils.py`, `FlexibleArgumentParser.parse_args` (0.28 to 0.33).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from epd.topology.canonical import canonical_json

_NUMBER = re.compile(r"^-[0-9.]")
_NAME = re.compile(r"^--[^.]*")


@dataclass(frozen=True, order=True)
class Argument:
    """One flag with its values. `flag` is empty for values that no flag precedes."""

    flag: str
    values: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """The flag that the parser knows: without `--no-` of a switch and without the `.key` of a JSON argument."""
        name = self.flag.partition(".")[0]
        return f"--{name.removeprefix('--no-')}" if name.startswith("--no-") else name


def _is_flag(word: str) -> bool:
    return word.startswith("-") and word != "-" and not _NUMBER.match(word)


def _canonical_value(value: str) -> str:
    if not value.startswith(("{", "[")):
        return value
    try:
        return canonical_json(json.loads(value))
    except ValueError:
        return value


def parse(args: Sequence[str]) -> tuple[Argument, ...]:
    """Return `args` as flags with values, in the order given.

    `--a b`, `--a=b` and `--a_b` are one flag however it is written: the parser turns underscores into dashes up to the
    first dot. JSON values lose insignificant spaces. Abbreviations stay as they are, because what they stand for
    depends on the engine's version.
    """
    found: list[tuple[str, list[str]]] = []
    for word in args:
        if not _is_flag(word):
            if not found:
                found.append(("", []))
            found[-1][1].append(_canonical_value(word))
            continue
        flag, separator, value = word.partition("=")
        flag = _NAME.sub(lambda match: match[0].replace("_", "-"), flag)
        found.append((flag, [_canonical_value(value)] if separator else []))
    return tuple(Argument(flag, tuple(values)) for flag, values in found)


def last_value(args: Sequence[str], flag: str) -> str | None:
    """Return the value that the parser would keep for `flag`: the last one given; None when there is none."""
    values = [argument.values[0] for argument in parse(args) if argument.flag == flag and argument.values]
    return values[-1] if values else None
