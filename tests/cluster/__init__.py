"""A cluster for end-to-end tests and the demo, brought up by itself.

Tests use `ensure()` and the `Cluster` it returns; people use `python -m cluster` (see docs/testing.md).
"""

from .client import Cluster
from .providers import ensure
from .steps import HarnessError

__all__ = ["Cluster", "HarnessError", "ensure"]
