from __future__ import annotations

import threading

import pytest

from epd.connector import sealing
from epd.connector.entry import ITEM_BYTES, Reason, Rejected, Shape, checksum, header
from epd.connector.sealing import Seal

VERSION = "v1-m-0123456789ab"
LARGE = Shape(dtype="BF16", rows=1024, width=4096)
SMALL = Shape(dtype="BF16", rows=3, width=4)


def payload(shape: Shape) -> memoryview:
    return memoryview(bytes(range(256)) * (shape.nbytes // 256 + 1))[: shape.nbytes]


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_the_header_is_the_entrys_and_as_long_as_was_said(shape: Shape) -> None:
    seal = Seal("0" * 64, VERSION, shape, payload(shape))
    expected = header("0" * 64, VERSION, shape, checksum(payload(shape)))
    assert (seal.length, seal.head(), seal.head()) == (len(expected), expected, expected)


def test_a_large_payload_is_hashed_in_a_thread_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, hashed_by = threading.Event(), []

    def slowly(data: memoryview) -> str:
        hashed_by.append(threading.current_thread())
        gate.wait()
        return checksum(data)

    monkeypatch.setattr(sealing, "checksum", slowly)
    seal = Seal("a", VERSION, LARGE, payload(LARGE))  # returns though nothing is hashed yet
    gate.set()
    assert seal.head() == header("a", VERSION, LARGE, checksum(payload(LARGE)))
    assert [(thread.name, thread.is_alive()) for thread in hashed_by] == [("epd-ec-hash", False)]


def test_where_no_thread_can_be_started_the_caller_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        seal = Seal("a", VERSION, LARGE, payload(LARGE))
    assert seal.head() == header("a", VERSION, LARGE, checksum(payload(LARGE)))


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_a_payload_that_is_not_as_long_as_its_shape_says_is_refused(shape: Shape) -> None:
    with pytest.raises(Rejected) as refused:
        Seal("a", VERSION, shape, memoryview(bytes(shape.nbytes + ITEM_BYTES["BF16"])))
    assert refused.value.reason == Reason.TORN
