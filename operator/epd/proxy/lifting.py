"""Takes long base64 texts out of a JSON body before it is parsed, and puts them back into what is written.

Pure. Knows nothing of media: any long string that begins like base64 is lifted, wherever it stands, and comes back at
the place where its string ends up. What is lifted is never copied.

Why the meaning can't change: a text is lifted only if it has no quote, no backslash, no control character and nothing
beyond ASCII, and ends at a quote. Inside a string it is then the same characters in JSON as in Python, and the mark in
its place is too. Outside of strings such a run before a quote is no JSON, nor is the mark. Keys are never lifted, since
of two equal keys a parser must see that they are equal.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Final

import orjson

from epd.proxy.identifiers import HashAlgorithm, content_digest, hasher
from epd.proxy.transport import Body, Buffer

LIFT_FROM: Final = 8 << 10
"""Bytes of a body from which on it is worth while: below, a parse and a dump cost no more than looking for it does."""

RUN: Final = 4 << 10
"""Bytes without a quote that make a candidate; shorter strings are parsed in less time than they are lifted."""

SLICE: Final = 64 << 10
"""Bytes that are checked and hashed at a time: they stay in a core's own cache between the two."""

SMALL: Final = 8 << 10
"""Bytes of a piece that is copied to others: a piece of its own costs some 200 bytes and a buffer of the socket."""

_HEAD: Final = 128
"""Bytes in which `data:<MIME type>;base64,` has to end; the longest registered MIME types have about 80."""
_INDEX: Final = 8
"""Digits of a payload's number behind the mark."""
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/=_-]{256}")
"""How a payload begins. A text of 256 characters without a space is no prose, so little is hashed for nothing."""
_END_OF_KEY: Final = re.compile(rb'"[ \t\n\r]*:')
_LETTERS: Final = str.maketrans("0123456789", "ghijklmnop")


@dataclass(frozen=True, slots=True)
class Payload:
    """A lifted text, in the pieces in which it came, and the digest of it."""

    pieces: tuple[Buffer, ...]
    digest: str

    def text(self) -> str:
        """The whole, copied."""
        return b"".join(self.pieces).decode("ascii")


class Payloads:
    """What was lifted out of one body. `mark` and a number stand for each in the skeleton; no client can know it."""

    __slots__ = ("_all", "mark")

    def __init__(self, mark: str, payloads: tuple[Payload, ...]) -> None:
        self.mark = mark
        self._all = payloads

    def __bool__(self) -> bool:
        return bool(self._all)

    def splice(self, text: bytes) -> Body:
        """Put the payloads back into JSON that was written from the skeleton."""
        if not self._all or (mark := self.mark.encode()) not in text:
            return text
        first, *others = text.split(mark)
        pieces: list[Buffer] = [first]
        for other in others:
            pieces += [*self._all[int(other[:_INDEX])].pieces, other[_INDEX:]]
        return tuple(pieces)

    def stands_in(self, text: str) -> bool:
        """Whether a mark is in a string that was read from the skeleton."""
        return bool(self._all) and self.mark in text

    def expand(self, text: str) -> str:
        """Give a string that was read from the skeleton back its payloads."""
        if not self.stands_in(text):
            return text
        first, *others = text.split(self.mark)
        return first + "".join([self._all[int(other[:_INDEX])].text() + other[_INDEX:] for other in others])

    def alone(self, text: str) -> Payload | None:
        """The payload for which `text` stands, if it is one mark and nothing else."""
        if not self._all or len(text) != len(self.mark) + _INDEX or not text.startswith(self.mark):
            return None
        return self._all[int(text[-_INDEX:])]

    def digest(self, algorithm: HashAlgorithm, text: str) -> str:
        """Hash a string that was read from the skeleton; `algorithm` is the one that lifted payloads were hashed by."""
        if not self._all:
            return content_digest(algorithm, text)
        payload = self.alone(text)
        return payload.digest if payload else content_digest(algorithm, self.expand(text))


NOTHING: Final = Payloads("", ())
"""Nothing was lifted."""


@dataclass(slots=True, init=False)
class LiftedBody:
    """A body: JSON, in which marks stand for `payloads`."""

    skeleton: bytes | bytearray
    payloads: Payloads

    def __init__(self, skeleton: bytes | bytearray, payloads: Payloads = NOTHING) -> None:
        self.skeleton = skeleton
        self.payloads = payloads


class _Run:
    """A text that may be lifted, as it came in pieces. `digest` is empty until it is known that it can be."""

    __slots__ = ("digest", "hasher", "pieces")

    def __init__(self, algorithm: HashAlgorithm) -> None:
        self.pieces: list[Buffer] = []
        self.hasher = hasher(algorithm)
        self.digest = ""

    def take(self, view: memoryview) -> bool:
        """Take and hash the next piece; False if it has a character that JSON writes otherwise than it is."""
        last = self.pieces[-1] if self.pieces else None
        if len(view) >= SMALL:
            self.pieces.append(view)
        elif isinstance(last, bytearray) and len(last) < SLICE:
            last += view
        else:
            self.pieces.append(bytearray(view))
        for start in range(0, len(view), SLICE):
            piece = view[start : start + SLICE]
            if not _is_plain(piece):
                return False
            self.hasher.update(piece)
        return True


class Lifter:
    """Takes a body as it arrives, and finds what to lift in it. No byte of a long payload is copied or read twice."""

    __slots__ = ("_algorithm", "_pending", "_run", "_runs", "_skipping", "_text", "_texts")

    def __init__(self, algorithm: HashAlgorithm) -> None:
        self._algorithm = algorithm
        # the body is text, run, text, run, ..., text, pending; where `_run` is open it is the last of `_runs`
        self._texts: list[bytearray] = []
        self._runs: list[_Run] = []
        self._text = bytearray()
        self._pending = b""
        self._run: _Run | None = None
        # in the midst of a long string that is not to be lifted
        self._skipping = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        start = 0
        if self._run is not None:
            start = self._follow(self._run, data, 0)
        elif self._pending:
            data, self._pending = self._pending + data, b""
        if start < len(data):
            self._scan(data, start)

    def lifted(self) -> LiftedBody:
        """The body without its payloads. Nothing may be fed after this."""
        mark = secrets.token_hex(16).translate(_LETTERS)
        self._text += self._pending
        first, *texts = *self._texts, self._text
        skeleton = first
        payloads: list[Payload] = []
        for run, text in zip(self._runs, texts, strict=True):
            if run.digest and not _END_OF_KEY.match(text):
                skeleton += f"{mark}{len(payloads):0{_INDEX}}".encode()
                payloads.append(Payload(tuple(run.pieces), run.digest))
            else:
                for piece in run.pieces:
                    skeleton += piece
            skeleton += text
        return LiftedBody(skeleton, Payloads(mark, tuple(payloads))) if payloads else LiftedBody(skeleton)

    def _scan(self, data: bytes, start: int) -> None:
        """Look for runs from `start` on. Bytes of which too few are there to say stay pending."""
        view = memoryview(data)
        # where the bytes without a quote begin that are looked at
        bare = start
        while start < len(data):
            if self._skipping:
                quote = data.find(b'"', bare)
                if quote < 0:
                    bare = len(data)
                    break
                self._skipping, bare = False, quote + 1
            edge = bare + RUN
            if edge > len(data):
                break
            quote = data.rfind(b'"', bare, edge)
            if quote >= 0:
                bare = quote + 1
                continue
            begin = _payload_begin(data, bare)
            if begin is None:
                self._skipping, bare = True, edge
                continue
            self._texts.append(self._text + view[start:begin])
            self._text = bytearray()
            self._run = _Run(self._algorithm)
            self._runs.append(self._run)
            start = bare = self._follow(self._run, data, begin)
        self._text += view[start:bare]
        self._pending = data[bare:]

    def _follow(self, run: _Run, data: bytes, begin: int) -> int:
        """Give an open run what is its own in `data`; where that ends."""
        quote = data.find(b'"', begin)
        end = quote if quote >= 0 else len(data)
        plain = run.take(memoryview(data)[begin:end])
        if quote >= 0 or not plain:
            self._run = None
            self._skipping = quote < 0
            run.digest = run.hasher.hexdigest() if plain else ""
        return end


def _payload_begin(data: bytes, start: int) -> int | None:
    """Where in a string that begins at `start`, and has RUN bytes at least, the payload begins; None without one."""
    begin = start
    if data[start : start + 5].lower() == b"data:":
        comma = data.find(b",", start, start + _HEAD)
        if comma < 0 or b"\\" in data[start:comma]:
            return None
        begin = comma + 1
    return begin if _BASE64.match(data, begin) else None


def _is_plain(piece: memoryview) -> bool:
    try:
        text = str(piece, "ascii")
    except UnicodeDecodeError:
        return False
    # the writer's vector code finds control characters, quotes and backslashes faster than any search Python has
    # DEL it does not mind, but Python's writer does
    return len(orjson.dumps(text)) == len(text) + 2 and "\x7f" not in text
