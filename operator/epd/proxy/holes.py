"""Holes in a document: places of parts that were taken out of it, and are put back once the rest is written.

Pure. Each hole has the number of its part, so neither the order in which a body is read nor the one in which its fields
stand can put a part in another's place.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Final

import orjson

_MARK: Final = b"\0"
"""Never in written JSON, which escapes it."""
_WITH_ONE_HOLE: Final = 3
"""Pieces of a document with one part, as most requests with media have."""


class Holes:
    """The holes of one document. Those of an `exact` one are strings, since Python's writer takes no fragments."""

    __slots__ = ("_name",)

    def __init__(self, *, exact: bool) -> None:
        # not to be guessed, since a text that has it would be split
        self._name = secrets.token_hex(16) if exact else ""

    def hole(self, number: int) -> object:
        """What stands in the document in place of part `number`."""
        return f"{self._name}.{number}" if self._name else orjson.Fragment(b"%b%d%b" % (_MARK, number, _MARK))

    def split(self, written: bytes) -> tuple[tuple[bytes, ...], list[int]]:
        """The pieces between the holes, and the number of the part that belongs between each two."""
        pieces = re.split(rb'"%b\.(\d+)"' % self._name.encode(), written) if self._name else written.split(_MARK)
        if len(pieces) == _WITH_ONE_HOLE:
            return (pieces[0], pieces[2]), [int(pieces[1])]
        return tuple(pieces[::2]), [int(number) for number in pieces[1::2]]

    def join(self, pieces: Sequence[bytes]) -> bytes:
        """The document again, with holes numbered as they come, to be read once more; only of an `exact` one."""
        first, *others = pieces
        holes = (b'"%b.%d"' % (self._name.encode(), number) for number in range(len(others)))
        return first + b"".join([part for pair in zip(holes, others, strict=True) for part in pair])
