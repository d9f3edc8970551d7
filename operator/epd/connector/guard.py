"""Keeps exceptions of the connector's own out of the engine, which none of them would leave alive. Decides nothing.

What a volume or a client does never gets here: it ends in a miss or in one request's error. This is for our mistakes.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

logger = logging.getLogger(f"vllm.{__name__}")

F = TypeVar("F", bound=Callable[..., Any])


class Guarded(Protocol):
    """Whose methods are guarded."""

    raised: dict[str, int]
    """Exceptions per method."""


def guarded(instead: Any = None) -> Callable[[F], F]:
    """Have a method return `instead` when it raises.

    Logs the first time, the second, the fourth and so on: what is wrong once may be wrong in each step.
    """

    def guard(method: F) -> F:
        name = method.__name__

        @functools.wraps(method)
        def hook(self: Guarded, *arguments: Any, **options: Any) -> Any:
            try:
                return method(self, *arguments, **options)
            except Exception:
                count = self.raised[name] = self.raised.get(name, 0) + 1
                if count & (count - 1) == 0:
                    logger.exception("encoder cache: %s raised for the %dth time; the engine goes on", name, count)
                return instead

        return hook  # type: ignore[return-value]  # functools.wraps keeps the signature

    return guard
