"""Keeps `Members` in step with the cluster: list, then watch, then list again.

The members last known stay while the API server can't be reached. Never writes to the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol

from epd.proxy.pods import Members, Pod

log = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS: Final = 0.2
LAST_BACKOFF_SECONDS: Final = 10.0
"""As client-go's reflector does (800 ms to 30 s), but faster: a proxy with an old list sends requests to dead pods."""


class WatchError(Exception):
    """A list or watch failed, most often with 410 Gone: the list must be read anew."""


class PodSource(Protocol):
    """Where pods come from."""

    async def list_pods(self) -> tuple[list[Pod], str]:
        """Return all pods and the resource version to watch from."""

    def watch_pods(self, resource_version: str) -> AsyncIterator[dict[str, Any]]:
        """Yield watch events (`type`, `object`) until the server ends the watch."""


async def follow(
    source: PodSource,
    members: Members,
    *,
    on_error: Callable[[], None],
    sleep: Callable[[float], Any] = asyncio.sleep,
) -> None:
    """Keep `members` in step with `source` until cancelled; `on_error` is called for each failed list or watch."""
    failures = 0
    blind = False
    while True:
        listed = False
        try:
            pods, version = await source.list_pods()
            members.replace_pods(pods)
            listed = True
            if blind:
                log.warning("pods can be read again")
            blind = False
            async for event in source.watch_pods(version):
                _apply(event, members)
                failures = 0
            failures = 0
        except Exception as error:
            on_error()
            failures += 1
            # an expired watch is everyday life; a list that fails leaves the proxy blind, which is said once
            level = logging.DEBUG if listed or blind else logging.WARNING
            blind = blind or not listed
            log.log(level, "reading pods failed, the %d last known stay: %s", len(members.all()), error)
        # jittered also after a regular end, or all proxies would list at once
        await sleep(backoff_seconds(failures) * random.uniform(0.5, 1))  # noqa: S311 - jitter, not a secret


def _apply(event: dict[str, Any], members: Members) -> None:
    if event["type"] == "ERROR":
        raise WatchError(str(event["object"].get("message", "watch error")))
    if event["type"] != "BOOKMARK":
        members.apply_event(event["type"], event["object"])


def backoff_seconds(failures: int) -> float:
    """The longest wait after `failures` failed attempts in a row."""
    return min(LAST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** min(failures, 10))
