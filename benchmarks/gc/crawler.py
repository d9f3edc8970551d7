"""The crawl-and-xargs way, from its published design (llm-d's PVC evictor): the peer of our bulk deletion.

Crawler processes share the version by the hexadecimal value of a directory's name; each walks it with scandir, looks at
every file's atime and puts its path into a queue. One deleter takes 100 at a time and gives them to `xargs -0 rm -f`.
Empty directories are removed afterwards. Nothing is checked again before it is deleted.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import time
from typing import Any, Final

CRAWLERS: Final = 2
"""As many as cores here; the design has 1 to 16."""
BATCH: Final = 100
_HOT: Final = 3600.0
"""Seconds: what was read within it stays."""


def delete(path: str) -> int:
    """Delete all files below `path`, and its directories; return the number of files."""
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue(maxsize=10_000)
    crawlers = [context.Process(target=_crawl, args=(path, number, queue)) for number in range(CRAWLERS)]
    for crawler in crawlers:
        crawler.start()
    deleted = _delete(queue)
    for crawler in crawlers:
        crawler.join()
    for name in os.listdir(path):
        os.rmdir(f"{path}/{name}")
    os.rmdir(path)
    return deleted


def _crawl(path: str, number: int, queue: Any) -> None:
    before = time.time() - _HOT
    with os.scandir(path) as shards:
        for shard in shards:
            if int(shard.name[:2], 16) % CRAWLERS == number:
                _walk(shard.path, before, queue)
    queue.put(None)


def _walk(path: str, before: float, queue: Any) -> None:
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _walk(entry.path, before, queue)
            elif entry.stat(follow_symlinks=False).st_atime < before:
                queue.put(entry.path)


def _delete(queue: Any) -> int:
    batch: list[str] = []
    deleted, running = 0, CRAWLERS
    while running:
        path = queue.get()
        if path is None:
            running -= 1
        else:
            batch.append(path)
        if len(batch) == BATCH or (batch and not running):
            subprocess.run(["xargs", "-0", "rm", "-f"], input="\0".join(batch), text=True, check=True)
            deleted += len(batch)
            batch = []
    return deleted
