"""One spelling for equal data, and hashes over it. Pure; knows no field of the API."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any


def _plain(value: Any) -> Any:
    """Whole floats become integers: YAML's `1.0` comes back from an API server as `1`."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def canonical_json(value: Any) -> str:
    """Return `value` as JSON that is equal for equal data: keys sorted, no spaces, ASCII only."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(value: Any, *, length: int) -> str:
    """Return the first `length` hex digits of the SHA-256 over the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]
