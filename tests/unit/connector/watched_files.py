"""The real file system, with a hook before each call: to fail it, or to do what another process might do there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Hook = Callable[[int, str, tuple[Any, ...]], None]


class WatchedFiles:
    """`os`'s functions. While `armed`, `hook` gets a call's number, name and arguments, and may raise."""

    def __init__(self, hook: Hook | None = None) -> None:
        self.calls: list[str] = []
        self.armed = True
        self._hook = hook

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if not self.armed:
                return function(*args, **kwargs)
            number = len(self.calls)
            self.calls.append(name)
            if self._hook is not None:
                try:
                    self._hook(number, name, args)
                except OSError:
                    if name == "close":  # as Linux does: the descriptor is gone, whatever close says
                        os.close(*args)
                    raise
            return function(*args, **kwargs)

        return call


def failing(at: int, error: int) -> WatchedFiles:
    """Files of which one call fails, once."""

    def hook(number: int, name: str, args: tuple[Any, ...]) -> None:
        if number == at:
            raise OSError(error, os.strerror(error))

    return WatchedFiles(hook)


def before(name: str, action: Callable[[], None], *, times: int = 1) -> WatchedFiles:
    """Files with something that happens before the first calls of a name."""
    left = [action] * times

    def hook(number: int, called: str, args: tuple[Any, ...]) -> None:
        if called == name and left:
            left.pop()()

    return WatchedFiles(hook)


@contextmanager
def no_descriptor_leaks() -> Iterator[None]:
    """Fail if what is inside leaves a descriptor open."""
    earlier = os.listdir("/proc/self/fd")
    yield
    assert os.listdir("/proc/self/fd") == earlier
