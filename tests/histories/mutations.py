"""Defects put into the collector's and the connector's source, each of which the histories must find.

A mutation is a text that is in its module once, and what stands there instead. One that no longer applies is an error:
it would prove nothing.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from histories.sites import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """What is wrong (`defect`), where, and which invariants may show it."""

    defect: str
    module: str
    old: str
    new: str
    shows: frozenset[int]
    focus: str = ""
    """A function at whose calls programs should hang: only then the defect shows soon."""

    @property
    def path(self) -> str:
        return str(PACKAGE / f"{self.module.replace('.', '/')}.py")

    def apply(self, source: str) -> str:
        """Return the source with the defect. Raises ValueError: the text is not there exactly once."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.module}: {source.count(self.old)} times {self.old!r}")
        return source.replace(self.old, self.new)


def _mutation(defect: str, module: str, old: str, new: str, *shows: int, focus: str = "") -> Mutation:
    return Mutation(defect=defect, module=module, old=old, new=new, shows=frozenset(shows), focus=focus)


MUTATIONS = (
    _mutation(
        "a version that lives is condemned and removed as any other",
        "collector.lifecycle", "if one.version in liveness.live:", "if one.version in liveness.expedited:", 3, 4,
    ),
    _mutation(
        "an answer that is not valid is acted on",
        "collector.lifecycle", "if not liveness.valid:", "if False:", 3, 4, 5,
    ),
    _mutation(
        "the age of an answer does not matter",
        "collector.versions", "if self.clock() - asked > MAX_LIVENESS_AGE:", "if False:", 4,
        focus="Versions._rename",
    ),
    _mutation(
        "the grace is not waited for",
        "collector.lifecycle", "if since < grace or reading.steady < grace:", "if reading.steady < 0:", 3,
    ),
    _mutation(
        "nobody asks again before a version is renamed",
        "collector.versions", "again = self._again([step.version])[0]", "again = step", 3, 4,
    ),
    _mutation(
        "the mark is looked at before the last question instead of after it",
        "collector.versions",
        "liveness = self.ask()\n        return decide(self.standings(versions), liveness,",
        "standings, liveness = self.standings(versions), self.ask()\n        return decide(standings, liveness,",
        3,
    ),
    _mutation(
        "pods and ReplicaSets are not asked",
        "collector.liveness", "for version in _used_by_workloads(listed):", "for version in ():", 3,
    ),
    _mutation(
        "pinned entries are evicted",
        "collector.evict", "if status.st_nlink > 1:", "if False:", 7,
    ),
    _mutation(
        "entries in use are evicted",
        "collector.evict", "if status.st_mtime > rule.idle_before:", "if False:", 10,
    ),
    _mutation(
        "a check before an unlink holds for ever",
        "collector.evict", "if self.clock() - began > CHECK_LIFETIME:", "if False:", 11,
        focus="Eviction._look",
    ),
    _mutation(
        "whatever lies in a shard is evicted",
        "collector.evict", "if names.ENTRY_PATTERN.fullmatch(entry.name)", "if entry.name", 2, 12,
    ),
    _mutation(
        "a dry run evicts",
        "collector.evict", "if self.dry_run:", "if False:", 4, 19,
    ),
    _mutation(
        "pins of readers that live are removed",
        "collector.pins", "return silence > SILENCE or", "return silence > 0 or", 9,
    ),
    _mutation(
        "unknown files in the trash are deleted",
        "collector.trash", "if is_ours(name, in_shard=in_shard)", "if name", 2,
    ),
    _mutation(
        "links and mounts are followed",
        "collector.files",
        "return _Held(files, files.open_directory(name, dir_fd=dir_fd))",
        "return _Held(files, files.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=dir_fd))",
        1, 2,
    ),
    _mutation(
        "records of other claims make versions ours",
        "collector.records", "if record.claim in claims", "if record.claim", 2,
    ),
    _mutation(
        "another claim's root is taken for our own",
        "collector.owner", "if owner.claim_uid == claim.uid:", "if owner.claim_uid:", 2,
    ),
    _mutation(
        "temporary files are swept while they are written",
        "collector.sweep", "TEMPORARY_AGE: Final = 3600.0", "TEMPORARY_AGE: Final = 1.0", 12,
    ),
    _mutation(
        "entries are written under their own name",
        "connector.writing",
        'temporary = f"{shard}/{layout.TEMPORARY_PREFIX}{nonce}"',
        "temporary = target",
        8, 12,
    ),
    _mutation(
        "the checksum is not compared",
        "connector.reading", "if hasher.hexdigest() != parsed.checksum:", "if False:", 7, 8,
    ),
    _mutation(
        "a directory that is gone is not made again",
        "connector.store", "_ATTEMPTS: Final = 5", "_ATTEMPTS: Final = 1", 6,
    ),
    _mutation(
        "errors of the file system reach the engine",
        "connector.seam",
        "raise StoreError(reason_of(error), error.errno, str(error)) from error",
        "raise",
        12,
    ),
    _mutation(
        "the version is marked and never renamed",
        "collector.versions", "if again.kind is not Kind.REMOVE:", "if again.kind is Kind.REMOVE:", 22,
    ),
)  # fmt: skip


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads one module with its mutation."""

    def __init__(self, name: str, mutation: Mutation) -> None:
        super().__init__(name, mutation.path)
        self._mutation = mutation

    def get_code(self, fullname: str) -> object:  # type: ignore[override]  # the code of another source
        with open(self._mutation.path, encoding="utf-8") as file:
            return compile(self._mutation.apply(file.read()), self._mutation.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutation: Mutation) -> None:
        self._mutation, self._name = mutation, f"epd.{mutation.module}"

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_loader(fullname, _Loader(fullname, self._mutation))


def install(mutation: Mutation) -> None:
    """Make this process import the mutated module."""
    if f"epd.{mutation.module}" in sys.modules:
        raise ImportError(f"{mutation.module} is imported already")
    sys.meta_path.insert(0, _Finder(mutation))
