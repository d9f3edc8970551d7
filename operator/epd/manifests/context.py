"""What rendering needs beyond the object itself. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]
"""One Kubernetes object as the API server takes it: no status, no resourceVersion."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the operator knows of itself and of the claim."""

    operator_image: str
    """Proxy and preflight run in the operator's own image."""
    operator_image_pull_policy: str | None = None
    preflight: bool = False
    """The claim is bound and an engine pod has a node: the check may mount it without pinning it."""
