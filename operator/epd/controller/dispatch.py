"""Sends each key to the reconciler of its kind. Decides nothing else."""

from __future__ import annotations

from epd.controller.keys import claim_key
from epd.controller.outcome import Outcome
from epd.controller.worker import Reconciles


class Dispatcher:
    """`worker.Reconciles` for keys of both kinds."""

    def __init__(self, *, deployments: Reconciles, claims: Reconciles) -> None:
        self._deployments, self._claims = deployments, claims

    async def reconcile(self, key: str) -> Outcome:
        """See the two reconcilers."""
        return await (self._claims if claim_key(key) else self._deployments).reconcile(key)
