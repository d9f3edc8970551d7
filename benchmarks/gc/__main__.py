"""The collector's speed: scans, deletions, memory and reaction, each against a named peer or limit of the same run.

    python benchmarks/gc [--only scan,delete,memory,removal,reaction] [--entries 40000] [--memory 2000000] ...
    python benchmarks/gc --entries 1000000 --deletions 100000 --memory 10000000 --rounds 5     the figures of the docs

Runs in a mount namespace of its own, on a tmpfs and, as root, on an ext4 image in memory that are made for it: a disk
and its other users are left out. `--directory` measures a file system of yours instead. Peers and ours take turns, each
in a process of its own; figures are medians. CPU is user and system time, and says more than wall time does where
others use the machine; entries are small, so it is work per entry that is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import delete
import measure
import memory
import reaction
import removal
import scan

PARTS = ("scan", "delete", "memory", "removal", "reaction")


@contextmanager
def file_systems(given: list[str], entries: int) -> Iterator[list[str]]:
    """Return directories to measure in, each on a file system of its own."""
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory() as base, ExitStack() as stack:
        size = 2 * entries * 4096 * 2 + 256 * 2**20  # file and directory per entry, twice over for inodes and journal
        memory_, ext4 = f"{base}/tmpfs", f"{base}/ext4"
        os.mkdir(memory_)
        os.mkdir(ext4)
        measure.mount_tmpfs(memory_, 2 * size)
        stack.callback(measure.unmount, memory_)
        found = [f"{memory_}/root"]
        os.mkdir(found[0])
        try:
            _mount_ext4(f"{memory_}/image", ext4, size, inodes=2 * entries + 10_000)
        except subprocess.CalledProcessError as error:
            print(f"ext4 is left out: {error}")
        else:
            stack.callback(measure.unmount, ext4)
            found.append(ext4)
        yield found


def _mount_ext4(image: str, path: str, size: int, *, inodes: int) -> None:
    with open(image, "wb") as file:
        file.truncate(size)
    lazily = "lazy_itable_init=0,lazy_journal_init=0"  # or the kernel goes on making the file system meanwhile
    for command in (
        ["mkfs.ext4", "-q", "-N", str(inodes), "-E", lazily, image],
        ["mount", "-o", "loop", image, path],
    ):
        subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/gc", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--directory", action="append", default=[], help="file systems to measure on")
    parser.add_argument("--entries", type=int, default=40_000, help="of a scan (default %(default)s)")
    parser.add_argument("--deletions", type=int, default=10_000, help="entries (default %(default)s)")
    parser.add_argument("--memory", type=int, default=1_000_000, help="generated entries (default %(default)s)")
    parser.add_argument("--renamed", type=int, default=100_000, help="entries of a dead version (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)s")
    given = parser.parse_args()
    only = given.only.split(",")
    measure.in_private_mounts()
    with contextlib.suppress(OSError):
        print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before the first measurement")
    with file_systems(given.directory, max(given.entries, given.deletions, given.renamed)) as directories:
        for directory in directories:
            if "scan" in only:
                measure.heading("Warm scan, one whole pass, against find -printf")
                scan.run(directory, given.entries, given.rounds)
            if "delete" in only:
                measure.heading("Bulk deletion of a dead version, with its checks")
                delete.run(directory, given.deletions, given.rounds)
            if "removal" in only:
                measure.heading("A dead version leaves the name space")
                removal.run(directory, given.renamed, 1)
    if "memory" in only:
        measure.heading("Memory of the process")
        memory.run(given.memory)
    if "reaction" in only:
        measure.heading("Crossing the high watermark")
        reaction.run(given.rounds)


if __name__ == "__main__":
    main()
