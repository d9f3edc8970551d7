from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from epd.collector.clock import Reading
from epd.collector.files import KernelFiles
from epd.collector.house import open_housekeeping, open_parts
from epd.collector.inputs import Liveness
from epd.collector.ledger import Ledger
from epd.collector.pins import Pins
from epd.collector.scan import Scanner

NOW = 1_700_000_000.0


def reaped(
    path: Path, *, age: float, pod: bool, valid: bool = True, reap: bool = True, beat: bool = True, **clock: Any
) -> bool:
    """Whether a pin of a reader that last beat `age` seconds ago is gone."""
    directory = path / ".epd-gc" / "pins" / "uid" / "nonce"
    directory.mkdir(parents=True)
    (directory / "1").write_bytes(b"x")
    then = NOW - age
    if beat:
        (directory / "heartbeat").write_bytes(b"")
        os.utime(directory / "heartbeat", (then, then))
    else:
        os.utime(directory, (then, then))
    files, ledger = KernelFiles(), Ledger()
    with ExitStack() as stack:
        root = os.open(path, os.O_RDONLY)
        stack.callback(os.close, root)
        house = stack.enter_context(open_housekeeping(files, root, make=True))
        open_parts(files, house, stack, ledger, make=True)
        pins = Pins(
            files=files,
            house=house,
            ledger=ledger,
            scanner=Scanner(files, house.device, ledger, lambda: False),
        )
        pins.look(
            reap=reap,
            liveness=Liveness(valid=valid, live={}, pods=frozenset({"uid"} if pod else ()), taken=0.0),
            reading=Reading(**({"now": NOW, "reliable": True, "steady": float("inf"), "skew": 0.0} | clock)),
        )
    gone = not (directory / "1").exists()
    assert gone == (not directory.exists())
    assert (pins.count, sum(ledger.removed.values())) == ((0, 1) if gone else (1, 0))
    assert not ledger.errors
    return gone


@pytest.mark.parametrize(
    ("told", "gone"),
    [
        ({"age": 599, "pod": True}, False),
        ({"age": 601, "pod": True}, True),  # its container was restarted
        ({"age": 601, "pod": True, "valid": False}, True),
        ({"age": 601, "pod": True, "beat": False}, True),
        ({"age": 179, "pod": False}, False),
        ({"age": 181, "pod": False}, True),
        ({"age": 181, "pod": False, "valid": False}, False),
        ({"age": 601, "pod": False, "reliable": False}, False),
        ({"age": 601, "pod": False, "steady": 599.0}, False),
        ({"age": 601, "pod": False, "reap": False}, False),
    ],
)
def test_09_pins_go_only_when_their_reader_is_known_to_be_gone(
    tmp_path: Path, told: dict[str, Any], gone: bool
) -> None:
    assert reaped(tmp_path, **told) == gone
