"""Engines of a history: the Managed connector's real store, and vLLM's ECExampleConnector as its source has it."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from epd.connector import layout
from epd.connector.entry import ITEM_BYTES, Expectation, Reason, Rejected, Shape
from epd.connector.store import Pin, Record, Store, StoreError
from histories.cluster import CLAIM, NAMESPACE
from histories.memory_fs import Files
from histories.memory_tree import Inode
from histories.process import Process

if TYPE_CHECKING:
    from histories.world import World

ROOT = "/cache"
IDENTIFIERS = ("a", "b", "c", "d", "e", "f", "g", "h", "../x", "/abs")
BLOCKS = (1, 1, 2, 3)
"""4 KiB blocks of an entry, drawn by its identifier."""
HEARTBEAT = 60.0
_WIDTH = 256
_HARMLESS = frozenset({Reason.ABSENT, Reason.STALE, Reason.IO, Reason.UNREADABLE, Reason.FULL, Reason.READ_ONLY})
"""Why an entry may be missed where nobody damages files: it is gone, or the file system fails."""


@cache
def content(version: str, identifier: str) -> tuple[bytes, Shape]:
    """Return what the encoder makes of an item: another for each version."""
    seed = hashlib.sha256(f"{version} {identifier}".encode()).digest()
    rows = 4 * BLOCKS[seed[0] % len(BLOCKS)] - 1  # with the header within so many blocks
    shape = Shape(dtype="F32", rows=rows, width=_WIDTH)
    size = rows * _WIDTH * ITEM_BYTES["F32"]
    return (seed * (size // len(seed) + 1))[:size], shape


@dataclass
class Managed:
    """One life of an engine with the Managed connector."""

    world: World
    process: Process
    uid: str
    version: str
    store: Store = field(init=False)
    pins: deque[tuple[Pin, str, int]] = field(default_factory=deque)
    beaten: int = 0

    def __post_init__(self) -> None:
        self.process.files.witness = self._witness
        self.published: set[str] = set()
        self.store = Store(
            ROOT,
            self.version,
            stamp_seconds=self.world.scenario.min_idle / 4,
            pod=self.uid,
            files=self.process.files,
            nonce=self.process.nonce,
            clock=self.process.clock,
        )

    def _witness(self, files: Files, operation: str, parent: Inode | None, name: str, inode: Inode) -> None:
        if operation == "create":
            self.process.facts.setdefault("created", set()).add(inode)
        if operation == "unlink":
            self.world.oracle.engine_unlinks(self.process, parent, name, inode)
        if operation == "replace":  # a bad entry, whatever it is, is replaced by a good one
            self.world.oracle.foreign.pop(inode, None)
        if operation == "renamed":
            self.published.add(name)
        if operation in ("link", "renamed") and name == layout.record_name(self.version):
            self.world.oracle.ours.add(self.version)

    def run(self) -> None:
        record = Record(version=self.version, claim=f"{NAMESPACE}/{CLAIM}", layout="Managed", created="2026-11-29")
        try:
            self.store.prepare(record)
        except OSError:
            self.world.count("engine: not prepared")
        actions: tuple[tuple[Callable[[str], None], int], ...] = (
            (self.publish, 36), (self.fetch, 34), (self.pin, 10), (self.stamp, 8), (self.measure, 5), (self.widths, 2),
            (self.holds, 5),
        )  # fmt: skip
        rng = self.process.rng
        while not self.process.facts.get("stop"):
            self.process.sleep(self.world.schedule.log_uniform(*self.world.scenario.engine_pace))
            self.beat()
            action = rng.choices([action for action, _ in actions], [weight for _, weight in actions])[0]
            action(rng.choice(IDENTIFIERS[: self.world.scenario.identifiers]))
            while self.pins and (len(self.pins) > 2 or rng.random() < 0.5):
                self.unpin()
        self.store.close()

    def beat(self) -> None:
        if self.process.clock() - self.beaten >= HEARTBEAT:
            self.beaten = int(self.process.clock())
            try:
                self.store.heartbeat()
            except OSError:
                self.world.count("engine: no heartbeat")

    def publish(self, identifier: str) -> None:
        payload, shape = content(self.version, identifier)
        self.published.clear()
        check = self.world.oracle.check
        try:
            result = self.store.publish(identifier, payload, shape)
        except StoreError as error:
            self.world.count(f"publish: {error.reason}")
            check(12, True, "")
            lucky = not self.process.habits.error_chance and not self.world.scenario.damage
            check(6, not lucky or error.reason is not Reason.ABSENT, f"a directory that was gone was not made: {error}")
            return
        except Exception as error:
            check(12, False, f"publish of {identifier!r} raised {error!r}")
            return
        if result.already:
            self.world.count("publish: already")
        else:
            check(
                12, layout.entry_name(identifier)[1] in self.published, f"{identifier!r} said published, is not there"
            )
            self.world.count("publish: written")
            if self.version in self.world.oracle.removed:
                check(6, True, "")
                self.world.count("publish: in a version that had been removed")

    def fetch(self, identifier: str) -> None:
        payload, shape = content(self.version, identifier)
        buffer = bytearray(len(payload))
        check = self.world.oracle.check
        try:
            self.store.fetch(self._expectation(identifier, shape), lambda _: memoryview(buffer))
        except Rejected as rejected:
            self._missed(rejected, f"fetch of {identifier!r}")
        except Exception as error:
            check(8, False, f"fetch of {identifier!r} raised {error!r}")
        else:
            check(8, bytes(buffer) == payload, f"fetch of {identifier!r} gave other bytes")
            self.world.count("fetch: hit")
            self.stamp(identifier)

    def _missed(self, rejected: Rejected, what: str) -> None:
        harmless = rejected.reason in _HARMLESS or self.world.scenario.damage
        self.world.oracle.check(8, harmless, f"{what} found something {rejected}")
        self.world.count(f"miss: {rejected.reason}")

    def _expectation(self, identifier: str, shape: Shape) -> Expectation:
        return Expectation(identifier=identifier, rows=shape.rows, width=shape.width, dtype=shape.dtype)

    def pin(self, identifier: str) -> None:
        _, shape = content(self.version, identifier)
        try:
            pin = self.store.pin(self._expectation(identifier, shape))
        except Rejected as rejected:
            self._missed(rejected, f"pin of {identifier!r}")
        except Exception as error:
            self.world.oracle.check(8, False, f"pin of {identifier!r} raised {error!r}")
        else:
            self.pins.append((pin, identifier, self.world.schedule.now))
            self.world.count("pinned")

    def unpin(self) -> None:
        """Read what is pinned, as a worker on another node does, and let it go."""
        pin, identifier, _ = self.pins.popleft()
        payload, _ = content(self.version, identifier)
        files, check = self.process.files, self.world.oracle.check
        try:
            fd = files.open(pin.path, os.O_RDONLY)
            try:
                data = files.pread(fd, len(payload), pin.parsed.offset)
            finally:
                files.close(fd)
        except FileNotFoundError:
            reaped = self.world.reaped(pin.path)
            check(7, reaped, f"the pin {pin.path} of {identifier!r} is gone, and nobody knows its reader as dead")
        except OSError:
            self.world.count("pin: not readable")
        else:
            check(7, data == payload or self.world.scenario.damage, f"the pin of {identifier!r} has other bytes")
        self.store.unpin(pin)

    def stamp(self, identifier: str) -> None:
        self.store.stamp(identifier)

    def holds(self, identifier: str) -> None:
        self.store.holds(identifier)

    def measure(self, identifier: str) -> None:
        _, shape = content(self.version, identifier)
        try:
            self.store.measure(self._expectation(identifier, shape))
        except Rejected as rejected:
            self._missed(rejected, f"measure of {identifier!r}")

    def widths(self, identifier: str) -> None:
        try:
            self.store.write_widths({"image": _WIDTH})
        except StoreError:
            self.world.count("widths: not written")
        self.world.oracle.check(8, self.store.read_widths() in ({}, {"image": _WIDTH}), "widths of somebody else")


class EngineDied(Exception):  # noqa: N818 - what a user sees
    """vLLM's connector met an error that it does not handle."""


@dataclass
class Example:
    """One life of an engine with vLLM's ECExampleConnector: no error is handled, so each one is the engine's end."""

    world: World
    process: Process
    version: str
    started: int = 0

    def run(self) -> None:
        self.started = self.world.schedule.now
        rng = self.process.rng
        while True:
            self.process.sleep(self.world.schedule.log_uniform(*self.world.scenario.engine_pace))
            identifier = rng.choice(IDENTIFIERS[: min(8, self.world.scenario.identifiers)])
            try:
                if rng.random() < 0.5:
                    self.save(identifier)
                else:
                    self.load(identifier)
            except FileNotFoundError as error:
                self._died(error)
                raise EngineDied from error
            except OSError as error:
                self.world.count(f"example engine died: {type(error).__name__}")
                raise EngineDied from error

    def _died(self, error: FileNotFoundError) -> None:
        """Its files may vanish only where the version had come back after the collector's last question."""
        removed = self.world.oracle.removed.get(self.version, -1)
        evicted = self.world.policy_evicts_example
        self.world.oracle.check(3, removed >= self.started or evicted, f"an engine with vLLM's connector died: {error}")
        self.world.count("example engine died: a file was gone")

    def _name(self, identifier: str) -> str:
        """`_generate_filename_debug`: makes the directory at each look-up."""
        folder = f"{ROOT}/{self.version}/{identifier}"
        for path in (f"{ROOT}/{self.version}", folder):
            try:
                self.process.files.mkdir(path)
            except FileExistsError:
                continue
        return f"{folder}/{layout.EXAMPLE_ENTRY}"

    def save(self, identifier: str) -> None:
        """`save_caches` with safetensors 0.8: a temporary file in the same directory, renamed."""
        payload, _ = content(self.version, identifier)
        files, name = self.process.files, self._name(identifier)
        temporary = f"{name.rpartition('/')[0]}/.tmp{self.process.nonce()[-6:]}"
        fd = files.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        files.ftruncate(fd, len(payload))
        written = 0
        while written < len(payload):
            written += files.write(fd, payload[written:])
        files.close(fd)
        files.rename(temporary, name)
        self.world.count("example: saved")

    def load(self, identifier: str) -> None:
        """`has_cache_item` in the scheduler, some time later `load_file` in the worker."""
        payload, _ = content(self.version, identifier)
        files, name = self.process.files, self._name(identifier)
        try:
            files.stat(name)
        except OSError:  # os.path.exists
            return
        self.process.sleep(self.world.schedule.log_uniform(0.001, 5.0))
        fd = files.open(self._name(identifier), os.O_RDONLY)
        data = files.read(fd, len(payload))
        files.close(fd)
        self.world.oracle.check(8, data == payload, f"the Example entry of {identifier!r} has other bytes")
        self.world.count("example: loaded")
