"""How much was last used when, in memory that does not grow with the entries; what to evict, oldest first. Pure.

Ages fall into 4,096 buckets whose width grows with the age (0.46 %): six minutes at a day. Of two entries in one bucket
either may go first; otherwise the older one does.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import Final

BUCKETS: Final = 4096
LAST: Final = BUCKETS - 1
SCALE: Final = BUCKETS / math.log(2.0**27)
"""Buckets per e-fold, so that the last one begins at 2**27 seconds: four years."""


class Histogram:
    """Entries and bytes by age. `reference` is the server's time, in seconds, that ages are counted from."""

    def __init__(self, reference: float) -> None:
        self.reference = reference
        self.counts = array("q", bytes(8 * BUCKETS))
        self.sizes = array("q", bytes(8 * BUCKETS))

    def bucket(self, stamp: float) -> int:
        """Return the bucket of a time of last use. What was used after the reference, or in the future, has age 0."""
        age = self.reference - stamp
        return min(int(math.log(age + 1.0) * SCALE), LAST) if age > 0 else 0

    def add(self, stamp: float, used_bytes: int) -> None:
        """Count an entry."""
        index = self.bucket(stamp)
        self.counts[index] += 1
        self.sizes[index] += used_bytes

    def subtract(self, stamp: float, used_bytes: int) -> None:
        """Forget an entry that is gone. One that was not counted, being newer than the scan, takes nothing away."""
        index = self.bucket(stamp)
        self.counts[index] = max(0, self.counts[index] - 1)
        self.sizes[index] = max(0, self.sizes[index] - used_bytes)

    def merge(self, other: Histogram) -> None:
        """Count all entries of another histogram with the same reference."""
        for index, count in enumerate(other.counts):
            if count:
                self.counts[index] += count
                self.sizes[index] += other.sizes[index]

    def cutoff(self, need_bytes: int, need_entries: int) -> Cutoff | None:
        """Return where to stop so that the oldest entries free both; None if nothing is needed or there is nothing."""
        if need_bytes <= 0 and need_entries <= 0:
            return None
        left_bytes, left_entries = need_bytes, need_entries
        for index in range(LAST, -1, -1):
            if self.sizes[index] >= left_bytes and self.counts[index] >= left_entries:
                return Cutoff(bucket=index, left_bytes=left_bytes, left_entries=left_entries)
            left_bytes -= self.sizes[index]
            left_entries -= self.counts[index]
        return Cutoff(bucket=0, left_bytes=left_bytes, left_entries=left_entries) if any(self.counts) else None


@dataclass(slots=True)
class Cutoff:
    """All of older buckets goes; of this bucket as much as is still needed after them, so that low is not undercut."""

    bucket: int
    left_bytes: int
    left_entries: int

    def covers(self, bucket: int) -> bool:
        """Tell whether an entry of the bucket is to go."""
        return bucket > self.bucket or (bucket == self.bucket and (self.left_bytes > 0 or self.left_entries > 0))

    def spend(self, bucket: int, used_bytes: int) -> None:
        """Take note of an entry that went."""
        if bucket == self.bucket:
            self.left_bytes -= used_bytes
            self.left_entries -= 1
