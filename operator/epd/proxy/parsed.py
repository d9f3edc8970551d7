"""A request that was read: its media items, and the bodies that are built from it, for engines of either kind.

Pure. Never reads what a client sent (`requests.py` does) and never decides where a request goes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from epd.proxy.documents import read_unbounded, write, write_exactly
from epd.proxy.holes import Holes
from epd.proxy.identifiers import HashAlgorithm, digest
from epd.proxy.lifting import NOTHING, Payloads
from epd.proxy.media import MediaItem
from epd.proxy.transport import Body


@dataclass(slots=True, init=False)
class ParsedRequest:
    """A request that may be sent on, and its distinct media items in prompt order. Never changed.

    The prefill side's body is `pieces` with `parts` between them, in the body's order, each part with the key of its
    item; equal items may have parts that differ in `detail`.
    """

    pieces: tuple[bytes, ...]
    parts: tuple[tuple[str, bytes], ...]
    payloads: Payloads
    items: tuple[MediaItem, ...]
    primer_fields: tuple[str, ...]
    """Names of PRIMER_FIELDS that the request has."""
    options: bytes
    """Those fields as JSON of one form, to begin primers with."""
    work_options: str
    """The same, with what was lifted out of them, to compare requests by."""
    result_options: str
    """Those of them on which the embeddings depend, and not only when they are made; written as `work_options` is."""
    rewritable: bool
    """Whether engines read what encoders report in place of media, which they do in chat only."""
    previous_response_id: str | None
    """The stored response that this one goes on from; only the engine that made it knows it."""

    def __init__(
        self,
        pieces: tuple[bytes, ...],
        parts: tuple[tuple[str, bytes], ...] = (),
        payloads: Payloads = NOTHING,
        *,
        items: tuple[MediaItem, ...] = (),
        primer_fields: tuple[str, ...] = (),
        options: bytes = b"{}",
        work_options: str = "{}",
        result_options: str = "{}",
        rewritable: bool = False,
        previous_response_id: str | None = None,
    ) -> None:
        self.pieces = pieces
        self.parts = parts
        self.payloads = payloads
        self.items = items
        self.primer_fields = primer_fields
        self.options = options
        self.work_options = work_options
        self.result_options = result_options
        self.rewritable = rewritable
        self.previous_response_id = previous_response_id

    @property
    def body(self) -> Body:
        """The body for the prefill side."""
        return self.body_with({})

    def with_fields(self, added: Mapping[str, object], *, dropped: Collection[str] = ()) -> ParsedRequest:
        """The request with other fields at the top of its body. Nothing of its media is read for that."""
        holes = Holes(exact=True)
        document, exact = read_unbounded(holes.join(self.pieces))
        kept = {**{name: value for name, value in document.items() if name not in dropped}, **added}
        pieces, numbers = holes.split((write_exactly if exact else write)(kept))
        return replace(self, pieces=pieces, parts=tuple([self.parts[number] for number in numbers]))

    @property
    def model(self) -> str:
        """The model that a request with media names, or an empty text."""
        name = orjson.loads(self.options).get("model")
        return name if isinstance(name, str) else ""

    def of_model(self, name: str) -> ParsedRequest:
        """The request as encoders get it when they know its model as `name`; the prefill side's body stays."""
        options = _of_model(self.options, name)
        work_options = result_options = self.payloads.expand(options.decode())
        if self.result_options is not self.work_options:
            result_options = _of_model(self.result_options.encode(), name).decode()
        return replace(self, options=options, work_options=work_options, result_options=result_options)

    def work_key(self, item: MediaItem, *, authorization: str) -> tuple[str, ...]:
        """Key of encoding `item` for this request: equal keys may share one primer in flight."""
        return (item.key, item.identifier or "", item.part_type, self.work_options, authorization)

    def result_keys(self) -> dict[str, str]:
        """Keys of what encoding each item gives, by its own key, without those that have no identifier.

        Of equal keys, equal embeddings are published under equal names.
        """
        options = digest(HashAlgorithm.BLAKE3, self.result_options)
        return {item.key: f"{item.part_type}/{item.key}/{options}" for item in self.items if item.identifier}

    def body_with(self, parts: dict[str, bytes]) -> Body:
        """Write the body with other parts, as JSON, in the places of items; `parts` has them by the item's key."""
        if not self.parts:
            return self.payloads.splice(self.pieces[0])
        written = [self.pieces[0]]
        for place, (key, part) in enumerate(self.parts, 1):
            written.append(parts.get(key, part))
            written.append(self.pieces[place])
        return self.payloads.splice(b"".join(written))


def primer_body(request: ParsedRequest, items: Sequence[MediaItem], fields: bytes = b"") -> Body:
    """Build the request that makes an encoder encode `items`: always a chat request, whatever the client's was.

    `fields` are more of them, each with a comma behind it.

    Never streamed: a streamed answer carries no `ec_transfer_params`. No `max_tokens`: since vLLM 0.28 an encoder
    never samples.
    """
    begin = request.options[:-1] + (b"," if request.primer_fields else b"")
    content = b",".join([item.written() for item in items])
    return request.payloads.splice(
        b'%b"stream":false,%b"messages":[{"role":"user","content":[%b]}]}' % (begin, fields, content)
    )


def _of_model(options: bytes, name: str) -> bytes:
    fields, exact = read_unbounded(options)
    return (write_exactly if exact else write)({**fields, "model": name}, sort_keys=True)
