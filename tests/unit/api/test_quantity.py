from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epd.api.quantity import bytes_text, duration_seconds, duration_text, quantity_value


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1h0m1s", 3601), ("0s", 0), ("24h", 86400)]
)
def test_durations(text: str, seconds: int) -> None:
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "10 m", "m", "30m1h", "-1s", "1.5h", "10m\n", "100000s", "1d"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="write hours, minutes and seconds such as 90s, 10m or 1h30m"):
        duration_seconds(text)


@given(hours=st.integers(0, 99999), minutes=st.integers(0, 99999), seconds=st.integers(0, 99999))
def test_any_duration(hours: int, minutes: int, seconds: int) -> None:
    assert duration_seconds(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (4, "4"),
        ("4", "4"),
        ("500m", "0.5"),
        ("1.5k", "1500"),
        ("64Mi", "67108864"),
        ("1Gi", "1073741824"),
        ("2T", "2000000000000"),
        ("1Ei", "1152921504606846976"),
    ],
)
def test_quantities(text: str | int, value: str) -> None:
    assert quantity_value(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "Gi", "64MB", "1 Gi", "-1", "1e3", "1.", ".5", "1Gi\n"])
def test_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="write a number with a unit such as 500m, 4, 64Mi or 100Gi"):
        quantity_value(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "0.97Ki"),
        (1024, "1Ki"),
        (1023 * 1024, "0.99Mi"),
        (13_207_024_436, "12.3Gi"),
        (107_374_182_400, "100Gi"),
        (10**18, "888Pi"),
        (2**80, "1048576Ei"),
    ],
)
def test_bytes_for_people(count: int, text: str) -> None:
    assert bytes_text(count) == text


@given(count=st.integers(0, 2**63))
def test_bytes_are_rounded_down_and_readable(count: int) -> None:
    value = quantity_value(bytes_text(count))

    assert count * 99 <= value * 100 <= count * 100 + 100
    assert len(bytes_text(count)) <= 7


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (59.9, "59s"), (3600, "1h"), (5400, "1h30m"), (3601, "1h1s")])
def test_lengths_of_time(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


@given(seconds=st.integers(0, 10**8))
def test_lengths_of_time_are_read_back(seconds: int) -> None:
    assert duration_seconds(duration_text(seconds)) == seconds
