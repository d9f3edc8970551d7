"""Half an hour in which clients vanish, engines die and come back, and come back as other versions.

At its end: no answer was wrong or lost, memory is flat, and no socket is left. Engines are given by flag, so a version
is only what an engine says of itself: pods and pairing by version are left to the tests on a node.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from stacks import Instance, Rack, cpus, free_port, ours

ENGINES: Final = ("e", "e", "pd", "pd")
"""Two of each role, of which one at a time is away."""
DEAD_SECONDS: Final = 4.0
"""Longer than the proxy needs to notice by probes (2 s), so that it meets the engine dead, out of rotation and back."""
CALM_SECONDS: Final = 8.0
"""Between two faults; the engine is probed back into rotation meanwhile."""
BREAK_SECONDS: Final = 3.0
"""How long after an engine's death a stream that it had begun may be seen to break off."""
GROWTH_MB: Final = 8.0
"""Memory after the first half against memory in the second quarter. Allocators differ by a few MB from hour to hour; a
leak of one 1 MB body in a thousand requests would be over 100 MB in half an hour."""
SETTLE_SECONDS: Final = 6.0
"""Idle connections are closed within 5 s, by the engines at the latest."""


@dataclass
class Story:
    """What happened; times in seconds since the epoch, memory in MB."""

    answered: int = 0
    vanished: int = 0
    versions: Counter[str] = field(default_factory=Counter)
    troubles: list[tuple[float, str, str]] = field(default_factory=list)
    deaths: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    sockets: list[int] = field(default_factory=list)

    def take(self, line: dict[str, Any]) -> None:
        """Add one line of the loader's."""
        self.answered += line["answered"]
        self.vanished += line["vanished"]
        self.versions.update(line["versions"] or {})
        self.troubles += [(each["time"], each["how"], each["text"]) for each in line["troubles"] or ()]

    def unexplained(self) -> list[tuple[float, str, str]]:
        """Return the troubles that no death explains: all but streams that broke off with their engine."""
        return [each for each in self.troubles if not (each[1] == "broken off" and self._died_before(each[0]))]

    def _died_before(self, moment: float) -> bool:
        return any(0 <= moment - death <= BREAK_SECONDS for death in self.deaths)


def growth(samples: Sequence[float]) -> float:
    """How much more the second half is than the second quarter, by medians: the first quarter is a warm-up."""
    if len(samples) < 4:
        return 0.0
    quarter, half = len(samples) // 4, len(samples) // 2
    return statistics.median(samples[half:]) - statistics.median(samples[quarter:half])


def verdicts(story: Story, before: int, after: int) -> Iterator[tuple[bool, str]]:
    """Judge the story; `before` and `after` are the sockets of the idle proxy."""
    unexplained, explained = story.unexplained(), len(story.troubles) - len(story.unexplained())
    yield story.answered > 0, f"{story.answered} right answers, {story.vanished} clients vanished"
    yield not unexplained, f"{len(unexplained)} wrong, lost, refused or broken-off answers: {_some(unexplained)}"
    yield True, f"{explained} streams broke off, visibly, as their engine died ({len(story.deaths)} deaths)"
    grown = growth(story.memory)
    yield grown <= GROWTH_MB, f"memory {_quarters(story.memory)} MB by quarters; grown by {grown:.1f} MB"
    leaked = after - before
    yield leaked <= len(ENGINES), f"{before} sockets before, {max(story.sockets, default=0)} at most, {after} after"
    rolled = len(story.versions)
    yield rolled > 1 or not story.deaths, f"{rolled} versions answered"


def _some(troubles: Sequence[tuple[float, str, str]]) -> str:
    kinds = Counter((how, text[:120]) for _, how, text in troubles)
    return "; ".join(f"{count} x {how}: {text}" for (how, text), count in kinds.most_common(5)) or "none"


def _quarters(samples: Sequence[float]) -> str:
    """Write the median of each quarter."""
    size = len(samples)
    parts = (samples[size * part // 4 : size * (part + 1) // 4] for part in range(4))
    return ", ".join(f"{statistics.median(part):.0f}" for part in parts if part)


def run(rack: Rack, seconds: float) -> bool:
    """Soak; whether everything held."""
    engines = [rack.start_engine(role) for role in ENGINES]
    port = free_port()
    proxy = rack.start_proxy("soak", ours(rack.package, port, *_urls(engines)), port)
    time.sleep(SETTLE_SECONDS)
    before, story = sockets(proxy.process.pid), Story()
    with _clients(rack, proxy.address, seconds) as lines:
        _faults(rack, engines, proxy, story, lines, time.monotonic() + seconds)
        for line in lines:
            story.take(json.loads(line))
    time.sleep(SETTLE_SECONDS)
    after = sockets(proxy.process.pid)
    held = True
    print(f"\nload average {os.getloadavg()[0]:.1f} at the end")
    for good, text in verdicts(story, before, after):
        held = held and good
        print(f"{'held' if good else 'FAILED':7} {text}")
    return held


def _urls(engines: Iterable[Instance]) -> tuple[str, str, str]:
    urls = [f"http://{engine.address}" for engine in engines]
    half = len(urls) // 2
    return ",".join(urls[:half]), "disable", ",".join(urls[half:])


@contextmanager
def _clients(rack: Rack, address: str, seconds: float) -> Iterator[Iterable[bytes]]:
    command = [str(rack.binary), "soak", "-address", address, "-d", f"{seconds}s"]
    pinned = ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", str(cpus()[1]), *command]
    with subprocess.Popen(pinned, stdout=subprocess.PIPE, process_group=0) as process:
        try:
            assert process.stdout is not None
            yield iter(process.stdout.readline, b"")
        finally:
            process.kill()


def _faults(
    rack: Rack, engines: list[Instance], proxy: Instance, story: Story, lines: Iterable[bytes], deadline: float
) -> None:
    """Let engines die and come back, in random order, until shortly before `deadline`; sample meanwhile."""
    chance = random.Random(0)
    dead: int | None = None
    turn, version = time.monotonic() + CALM_SECONDS, 1
    for line in lines:  # one every 5 s, so this is the clock too
        told = len(story.unexplained())
        story.take(json.loads(line))
        for moment, how, text in story.unexplained()[told:]:
            since = f"{moment - story.deaths[-1]:.1f} s after a death" if story.deaths else "before any death"
            print(f"  {how}, {since}: {text}", flush=True)
        story.memory.append(memory_mb(proxy.process.pid))
        story.sockets.append(sockets(proxy.process.pid))
        now = time.monotonic()
        if dead is not None and now >= turn:
            version += 1
            engines[dead] = rack.start_engine(ENGINES[dead], address=engines[dead].address, version=f"v{version}")
            dead, turn = None, now + CALM_SECONDS
        elif dead is None and turn <= now < deadline - DEAD_SECONDS - CALM_SECONDS:
            dead = chance.randrange(len(ENGINES))
            story.deaths.append(time.time())  # before it: streams break off at once, and we may have to wait
            os.kill(engines[dead].process.pid, signal.SIGKILL)
            turn = now + DEAD_SECONDS
        if len(story.memory) % 6 == 0:
            print(
                f"{max(0, deadline - now):5.0f} s left: {story.answered} answered, {story.vanished} vanished, "
                f"{len(story.deaths)} deaths, {len(story.unexplained())} unexplained, {story.memory[-1]:.0f} MB, "
                f"{story.sockets[-1]} sockets",
                flush=True,
            )


def memory_mb(pid: int) -> float:
    """Resident memory, in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def sockets(pid: int) -> int:
    """How many sockets a process has open."""
    count = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            count += entry.readlink().name.startswith("socket:")
        except FileNotFoundError:
            continue  # closed meanwhile
    return count
