"""Fewer age buckets, before anything that counts by them is imported: 4,096 of them cost more than a whole small pass.

The histories' volumes hold dozens of entries. What the buckets mean is tested with all of them, in `test_stills.py`.
"""

from __future__ import annotations

import math
import sys

from epd.collector import histogram

if "epd.collector.scan" in sys.modules:
    raise ImportError("histories.coarse must come before what counts by buckets")

histogram.BUCKETS = 256  # type: ignore[misc]  # Final for the program, not for a test
histogram.LAST = histogram.BUCKETS - 1  # type: ignore[misc]
histogram.SCALE = histogram.BUCKETS / math.log(2.0**27)  # type: ignore[misc]
