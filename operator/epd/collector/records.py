"""The records that make a version's directory ours. Reads them, and writes those that live versions lack."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from epd.collector import documents
from epd.collector.files import Files
from epd.collector.inputs import Layout
from epd.collector.ledger import Ledger
from epd.connector import layout as names


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What `versions/<version>.json` says. `claim` is `<namespace>/<name>`."""

    version: str
    claim: str
    layout: Layout
    inputs: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""

    def encode(self) -> dict[str, Any]:
        """Return the file's content."""
        return {
            "format": names.FORMAT,
            "version": self.version,
            "claim": self.claim,
            "layout": self.layout,
            "inputs": dict(self.inputs),
            "created": self.created,
        }


def parse(content: Mapping[str, Any] | None, version: str) -> Record | None:
    """Return the record; None for one that is damaged, of a newer format or another version: then nothing is ours."""
    if content is None or content.get("format") != names.FORMAT or content.get("version") != version:
        return None
    claim, inputs = content.get("claim"), content.get("inputs", {})
    found: Any = content.get("layout")
    if not isinstance(claim, str) or found not in get_args(Layout) or not isinstance(inputs, dict):
        return None
    return Record(version=version, claim=claim, layout=found, inputs=inputs, created=str(content.get("created", "")))


class Records:
    """Reads all records; a file that did not change since the last pass is not opened again."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[tuple[int, int], Record | None]] = {}

    def load(self, files: Files, directory: int, claims: frozenset[str], ledger: Ledger) -> dict[str, Record]:
        """Return the records that name one of `claims`, by version. What cannot be read is not ours. Raises OSError."""
        before, self._read = self._read, {}
        with files.scandir(directory) as entries:
            found = [entry.name for entry in entries]
        for name in found:
            version = name.removesuffix(".json")
            if name != names.record_name(version) or not names.is_version(version):
                continue
            try:
                status = files.stat(name, dir_fd=directory, follow_symlinks=False)
                identity = (status.st_ino, status.st_ctime_ns)
                if version in before and before[version][0] == identity:
                    self._read[version] = before[version]
                else:
                    record = parse(documents.read(files, name, dir_fd=directory), version)
                    self._read[version] = (identity, record)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    ledger.error("read", error)
        ours = {version: record for version, (_, record) in self._read.items() if record is not None}
        return {version: record for version, record in ours.items() if record.claim in claims}


def publish(files: Files, directory: int, record: Record, nonce: Callable[[], str]) -> bool:
    """Write a record unless there is one; tells whether it was written. Raises OSError."""
    return documents.publish(files, names.record_name(record.version), record.encode(), dir_fd=directory, nonce=nonce)
