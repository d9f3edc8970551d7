"""Durations and quantities as the API writes them: parsing, bounds and writing. Pure; knows no field of the API."""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, Decimal
from typing import Final

DURATION_PATTERN: Final = r"^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,5}s)?$"
"""Hours, minutes and seconds in this order, such as `90s`, `10m` or `1h30m`. Bounded, so that sums stay small."""

QUANTITY_PATTERN: Final = r"^([0-9]+(\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
"""The non-negative part of Kubernetes' quantity syntax without exponents (apimachinery resource/quantity.go)."""

_SCALE: Final[dict[str, Decimal]] = {"": Decimal(1), "m": Decimal("0.001")} | {
    unit: Decimal(base**power)
    for base, units in ((1000, "kMGTPE"), (1024, ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")))
    for power, unit in enumerate(units, 1)
}


def duration_seconds(text: str) -> int:
    """Return the length of a duration such as `1h30m` in seconds.

    Raises:
        ValueError: `text` is no duration.
    """
    if not text or not (match := re.fullmatch(DURATION_PATTERN, text)):
        raise ValueError(f"{text!r} is no duration: write hours, minutes and seconds such as 90s, 10m or 1h30m")
    hours, minutes, seconds = (int(part[:-1]) if part else 0 for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def quantity_value(text: str | int) -> Decimal:
    """Return a Kubernetes quantity such as `100Gi` or `500m` as a number.

    Raises:
        ValueError: `text` is no quantity.
    """
    if not (match := re.fullmatch(QUANTITY_PATTERN, str(text))):
        raise ValueError(f"{text!r} is no quantity: write a number with a unit such as 500m, 4, 64Mi or 100Gi")
    return Decimal(match[1]) * _SCALE[match[3] or ""]


_BINARY_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def bytes_text(count: int) -> str:
    """Return a number of bytes as a quantity for people, with three digits such as `12.3Gi`, rounded down.

    Coarse on purpose: a status that moved with every byte would be written again and again.
    """
    value, unit = Decimal(count), 0
    while value >= 1000 and unit < len(_BINARY_UNITS) - 1:  # not 1024: `1010Ki` has four digits
        value, unit = value / 1024, unit + 1
    digits = 0 if unit == 0 or value >= 100 else 1 if value >= 10 else 2
    rounded = value.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_DOWN)
    text = f"{rounded:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + _BINARY_UNITS[unit]


def duration_text(seconds: float) -> str:
    """Return a length of time as the API writes it, such as `1h30m`; whole seconds, rounded down."""
    whole = int(seconds)
    parts = ((whole // 3600, "h"), (whole // 60 % 60, "m"), (whole % 60, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"
