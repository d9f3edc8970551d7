"""What rendering needs beyond the object itself. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from epd.manifests.connector_sources import connector_sources

Manifest = dict[str, Any]
"""One Kubernetes object as the API server takes it: no status, no resourceVersion."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the operator knows of itself and of the claim."""

    operator_image: str
    """Proxy, collector and preflight run in the operator's own image."""
    operator_image_pull_policy: str | None = None
    preflight: bool = False
    """The claim is bound and an engine pod has a node: the check may mount it without pinning it."""
    connector_sources: Mapping[str, str] = field(default_factory=connector_sources)
    """The Managed connector: file name to text. This release's own; tests put two releases side by side."""
