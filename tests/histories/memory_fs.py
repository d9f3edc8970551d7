"""One file system in memory behind `os`'s functions: what collector and connector are given as `files` in histories.

Each process has its own `Files`: descriptors, a gate before every call (where histories switch between actors, crash,
pause and inject errors) and a witness that is told of every change. All see the same `memory_tree` of volumes.
`test_memory_fs.py` runs random calls against this and against the real `os` and compares every answer.
"""

from __future__ import annotations

from histories.memory_data import Data
from histories.memory_names import Names
from histories.memory_scan import Lister


class Files(Data, Names, Lister):
    """`os`, for one process: what opens, reads, writes, names, lists and tells."""
