"""One worker: takes keys from the queue, reconciles, and decides when each comes back.

Counts and logs; knows nothing of what a reconcile does.
"""

from __future__ import annotations

import logging
import time
from typing import Protocol

from epd.controller import metrics
from epd.controller.errors import ClusterError, Retryable
from epd.controller.outcome import Outcome
from epd.controller.queue import ShutDown, WorkQueue

logger = logging.getLogger(__name__)


class Reconciles(Protocol):
    """What a worker drives."""

    async def reconcile(self, key: str) -> Outcome:
        """Raises `errors.ClusterError` for what should be tried again."""


async def work(queue: WorkQueue, reconciler: Reconciles) -> None:
    """Work until the queue is shut down."""
    while True:
        try:
            key = await queue.get()
        except ShutDown:
            return
        metrics.ACTIVE_WORKERS.labels(metrics.CONTROLLER).inc()
        started = time.perf_counter()
        try:
            result = await _one(queue, reconciler, key)
        finally:
            queue.done(key)
            metrics.ACTIVE_WORKERS.labels(metrics.CONTROLLER).dec()
        metrics.RECONCILE_SECONDS.labels(metrics.CONTROLLER).observe(time.perf_counter() - started)
        metrics.RECONCILE_TOTAL.labels(metrics.CONTROLLER, result).inc()


async def _one(queue: WorkQueue, reconciler: Reconciles, key: str) -> str:
    try:
        outcome = await reconciler.reconcile(key)
    except ClusterError as e:
        delay = queue.add_rate_limited(key, at_least=(e.after or 0.0) if isinstance(e, Retryable) else 0.0)
        logger.warning("%s: %s; again in %.1f s", key, e, delay)
    except Exception:
        # A bug must not stop the worker for all other objects; it is told in full and tried again, ever more slowly.
        delay = queue.add_rate_limited(key)
        logger.exception("%s: unexpected error; again in %.1f s", key, delay)
    else:
        queue.forget(key)
        if outcome.stalled:
            metrics.TERMINAL_ERRORS.labels(metrics.CONTROLLER).inc()
        for other in outcome.also:
            queue.add(other)
        if outcome.requeue_after is None:
            return "success"
        queue.add_after(key, outcome.requeue_after)
        return "requeue_after"
    metrics.RECONCILE_ERRORS.labels(metrics.CONTROLLER).inc()
    return "error"
