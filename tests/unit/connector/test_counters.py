from __future__ import annotations

import os

from epd.connector.counters import COLUMNS, Counts, NoRow, WorkerReader, WorkerRow, merge


def test_what_was_taken_is_counted_anew():
    counts = Counts()
    counts.add("hits")
    counts.add("hits", 2)
    counts.reason("rejects", "torn")
    counts.observe("load_seconds", 0.5)
    counts.gauge(3)
    assert counts.take() == {"hits": 3, "rejects": {"torn": 1}, "load_seconds": [0.5], "held": 3}
    counts.gauge(3)
    assert counts.take() == {}


def test_deltas_add_up():
    into = {"hits": 1, "held": 5, "rejects": {"torn": 1}, "load_seconds": [1.0]}
    merge(into, {"hits": 2, "held": 4, "rejects": {"torn": 1, "width": 1}, "load_seconds": [2.0], "saves": 1})
    assert into == {
        "hits": 3,
        "held": 4,
        "rejects": {"torn": 2, "width": 1},
        "load_seconds": [1.0, 2.0],
        "saves": 1,
    }


def test_workers_count_where_the_scheduler_reads(tmp_path):
    path = str(tmp_path / "block")
    size = 2 * len(COLUMNS) * 8
    with open(path, "wb") as file:
        file.write(bytes(size))
    fd = os.open(path, os.O_RDWR)
    import mmap

    buffer = memoryview(mmap.mmap(fd, size))
    os.close(fd)
    reader, counts = WorkerReader(buffer, 2), Counts()
    rows = [WorkerRow(path, rank) for rank in (0, 1)]
    rows[0].add("saves")
    rows[0].add("save_failures.full", 2)
    rows[1].add("load_failures")
    reader.into(counts)
    assert counts.take() == {"saves": 1, "save_failures": {"full": 2}, "load_failures": 1}
    rows[0].add("saves")
    reader.into(counts)
    assert counts.take() == {"saves": 1}
    reader.into(counts)
    assert counts.take() == {}


def test_a_worker_without_the_block_counts_nowhere(tmp_path):
    WorkerRow(str(tmp_path / "absent"), 0).add("saves")
    (tmp_path / "short").write_bytes(bytes(8))
    WorkerRow(str(tmp_path / "short"), 0).add("saves")
    NoRow().add("saves")
    assert (tmp_path / "short").read_bytes() == bytes(8)
