from __future__ import annotations

import random

from epd.collector.histogram import LAST, Cutoff, Histogram


def test_memory_does_not_grow_with_entries() -> None:
    """20."""
    histogram = Histogram(10**9)
    before = histogram.counts.buffer_info()[1], histogram.sizes.buffer_info()[1]
    for age in range(100_000):
        histogram.add(10**9 - age * 10**4, 4096)

    assert (histogram.counts.buffer_info()[1], histogram.sizes.buffer_info()[1]) == before
    assert sum(histogram.counts) == 100_000


def test_older_is_never_in_a_younger_bucket() -> None:
    histogram = Histogram(10**9)
    buckets = [histogram.bucket(10**9 - 1.05**power) for power in range(-200, 500)]

    assert buckets == sorted(buckets)
    assert (buckets[0], buckets[-1]) == (0, LAST)
    assert histogram.bucket(10**9 + 5) == 0


def test_15_cutoff_takes_the_oldest_and_14_no_more_than_needed() -> None:
    """15: everything kept is in a bucket that is no older; 14: at most one entry beyond the need goes."""
    draw = random.Random(7)
    histogram = Histogram(10**9)
    entries = [(10**9 - draw.uniform(0, 10**6), draw.randrange(1, 100) * 512) for _ in range(5000)]
    for stamp, size in entries:
        histogram.add(stamp, size)
    need = sum(size for _, size in entries) // 3
    cutoff = histogram.cutoff(need, 0)
    assert cutoff is not None
    gone, kept = [], []
    for stamp, size in entries:
        bucket = histogram.bucket(stamp)
        if cutoff.covers(bucket):
            cutoff.spend(bucket, size)
            gone.append((bucket, size))
        else:
            kept.append(bucket)

    freed = sum(size for _, size in gone)
    assert need <= freed < need + 100 * 512
    assert max(kept) <= min(bucket for bucket, _ in gone)


def test_cutoff_serves_bytes_and_entries() -> None:
    histogram = Histogram(1000.0)
    for stamp in (0.0, 500.0, 990.0):
        histogram.add(stamp, 100)

    assert histogram.cutoff(0, 0) is None
    assert histogram.cutoff(50, 2) == Cutoff(bucket=histogram.bucket(500.0), left_bytes=-50, left_entries=1)
    assert histogram.cutoff(10**6, 0) == Cutoff(bucket=0, left_bytes=10**6 - 300, left_entries=-3)
    assert Histogram(1000.0).cutoff(1, 1) is None


def test_subtract_and_merge() -> None:
    one, other = Histogram(1000.0), Histogram(1000.0)
    one.add(0.0, 100)
    other.add(0.0, 50)
    other.add(900.0, 7)
    one.merge(other)
    one.subtract(0.0, 100)
    one.subtract(999.0, 5)  # newer than the scan: never counted

    assert (sum(one.counts), sum(one.sizes)) == (2, 57)
