"""What a request needs from the store, item by item. Pure; knows vLLM's requests only by their shape.

Shapes: vllm/v1/request.py (`request_id`, `mm_features`), vllm/multimodal/inputs.py (`identifier`, `modality`, `data`,
`mm_position`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .holdings import Key


@dataclass(frozen=True, slots=True)
class Want:
    """One item of a request; `end` is the first token after it. `bare`: without pixels, so only an entry serves it."""

    key: Key
    end: int
    modality: str
    bare: bool


@dataclass(slots=True, eq=False)
class Ask:
    """A request as far as its media go, from its first admission until it is finished."""

    id: str
    wants: list[Want]
    keys: dict[str, Key]
    end: int
    contradictory: bool
    """One identifier, several sizes: an entry or a tensor in a cache is of one of them, whichever is asked for."""
    stamp_at: float = 0.0
    hits: set[str] = field(default_factory=set)
    """Identifiers of which this request holds a copy or pin."""
    loose: set[str] = field(default_factory=set)
    """Of these the ones with pixels, which are let go as soon as they are computed."""
    misses: dict[str, float] = field(default_factory=dict)
    """Identifier to the time of the verdict."""
    checked: set[str] = field(default_factory=set)

    def hit(self, want: Want) -> None:
        """Note that an item is held for this request."""
        self.hits.add(want.key[0])
        if not want.bare:
            self.loose.add(want.key[0])

    def let_go(self, want: Want) -> bool:
        """Note that a computed item is not needed any more; False if it is: without pixels it cannot be had again."""
        identifier = want.key[0]
        if identifier not in self.loose:
            return False
        self.loose.discard(identifier)
        self.hits.discard(identifier)
        return True


def ask(request: Any, fields: Callable[[str], set[str]]) -> Ask:
    """Read a request. `fields` names the keys of a modality that are metadata, not media."""
    keys: dict[str, Key] = {}
    wants = []
    for feature in request.mm_features:
        key = (feature.identifier, feature.mm_position.get_num_embeds())
        keys.setdefault(feature.identifier, key)
        end = feature.mm_position.offset + feature.mm_position.length
        wants.append(Want(key, end, feature.modality, bare(feature, fields)))
    end = max((want.end for want in wants), default=0)
    return Ask(request.request_id, wants, keys, end, any(want.key != keys[want.key[0]] for want in wants))


def bare(feature: Any, fields: Callable[[str], set[str]]) -> bool:
    """Tell whether nothing but placeholder metadata has a value, as ECCPUConnector does (ec_connector/cpu)."""
    data = feature.data
    if not data:
        return True
    metadata = fields(feature.modality)
    return not any(value.data is not None for key, value in data.items() if key not in metadata)
