"""What a soak does to a store: clients that know the right answer, and a filler that writes entries as encoders do.

Counts what happened; judges nothing.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from cluster import entries
from cluster.chat import COLOURS, QUESTIONS, ask, picture
from epd.connector import layout
from epd.connector.entry import Shape

PAUSE = 0.5
"""Seconds between a client's requests: on 2 cores more would only slow the start of new engines."""
KNOWN_PICTURES = 8
"""Asked for again and again by all clients."""
KINDS = ("new", "repeated", "several", "text")


@dataclass
class Answers:
    """What the clients got."""

    right: Counter[str] = field(default_factory=Counter)
    """By kind."""
    colours: Counter[str] = field(default_factory=Counter)
    """Right answers by the first colour asked for."""
    encode: Counter[str] = field(default_factory=Counter)
    """By what the proxy says it did."""
    pictures: int = 0
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


class Clients:
    """Clients of one URL, each a thread that asks for new, repeated and several pictures and for text, in turn."""

    def __init__(self, url: str, *, count: int) -> None:
        self.answers = Answers()
        self._url = url
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._known = [(colour, picture(colour)) for colour in list(COLOURS)[:KNOWN_PICTURES]]
        self._threads = [threading.Thread(target=self._work, args=(number,), daemon=True) for number in range(count)]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Let each end its request."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _work(self, number: int) -> None:
        rng = random.Random(number)
        turn = number
        while not self._over.wait(PAUSE):
            kind, stream = KINDS[turn % len(KINDS)], bool(turn // len(KINDS) % 2)
            self._ask(kind, self._shown(kind, rng), stream=stream, question=rng.choice(QUESTIONS))
            turn += 1

    def _shown(self, kind: str, rng: random.Random) -> list[tuple[str, str]]:
        """Colours and pictures of a request of this kind."""

        def new() -> tuple[str, str]:
            colour = rng.choice(list(COLOURS))
            return colour, picture(colour)

        if kind == "new":
            return [new()]
        if kind == "repeated":
            return [rng.choice(self._known)]
        if kind == "several":  # two or three, as the model was trained
            return [new(), rng.choice(self._known), new()][: rng.choice((2, 3))]
        return []

    def _ask(self, kind: str, shown: list[tuple[str, str]], *, stream: bool, question: str) -> None:
        colours, began = " and ".join(colour for colour, _ in shown), time.monotonic()
        try:
            answer = ask(self._url, [url for _, url in shown], stream=stream, question=question)
        except (httpx.HTTPError, AssertionError) as error:
            with self._lock:
                self.answers.failed.append(f"{kind}, stream={stream}: {type(error).__name__}: {error}")
            return
        took = time.monotonic() - began
        with self._lock:
            self.answers.seconds.append(took)
            self.answers.pictures += len(shown)
            self.answers.encode[answer.headers.get("x-epd-encode", "")] += 1
            if answer.status != 200:
                self.answers.failed.append(f"{kind}, stream={stream}: {answer.status} {answer.text[:300]}")
            elif shown and answer.text != colours:
                self.answers.wrong.append(f"{kind}, stream={stream}: {colours}: {answer.text[:100]}")
            else:
                self.answers.right[kind] += 1
                self.answers.colours.update(colour for colour, _ in shown)


class Filler:
    """Writes entries of a live version by hand until it is stopped: `rate` a second, and at times a quarter of it.

    Of those that are live, the newest of which an engine has made the directory: it makes shards but never a version's
    directory, so that what the collector removes stays removed.
    """

    SHAPE = Shape(dtype="F32", rows=8, width=64)
    """With its header a little less than a page of 4 KiB, the least that an entry can take."""
    ALLOCATED = 4096
    STEP = 0.05
    """Seconds between two batches."""
    FULL, SLOW = 120.0, 75.0
    """Seconds at full and at a quarter of the rate, in turn: while it is slow, entries grow old without pressure."""

    def __init__(self, store: Path, *, versions: Callable[[], Sequence[str]], rate: float) -> None:
        """`versions` are the live ones, in order."""
        self.written = 0
        self.failures: Counter[str] = Counter()
        self._store, self._versions, self._rate = store, versions, rate
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the batch under way."""
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        owed, before = 0.0, (began := time.monotonic())
        while not self._over.wait(self.STEP):
            now = time.monotonic()
            slow = (now - began) % (self.FULL + self.SLOW) > self.FULL
            owed += (now - before) * self._rate / (4 if slow else 1)
            owed = min(owed, self._rate)  # what a second may make up for
            before = now
            version = next((each for each in reversed(self._versions()) if (self._store / each).is_dir()), None)
            for _ in range(int(owed)):
                if version is not None:
                    self._write(version)
            owed -= int(owed)

    def _write(self, version: str) -> None:
        identifier = f"filling-{self.written}-{os.urandom(4).hex()}"
        file = entries.path(self._store, version, identifier)
        try:
            if not file.parent.exists():
                file.parent.mkdir()
                os.chown(file.parent, 1000, -1)  # engines and collector go on writing there
                file.parent.chmod(0o2000 | layout.DIRECTORY_MODE)
            entries.write(file, identifier, version, self.SHAPE, os.urandom(self.SHAPE.nbytes))
            os.chown(file, 1000, -1)
            self.written += 1
        except FileNotFoundError:
            self.failures["the collector took the directory"] += 1  # an engine would make it again
        except OSError as error:
            self.failures[error.strerror or type(error).__name__] += 1
