"""Clients that ask for new pictures, one after the other, while a test changes what answers them. Asserts nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from cluster.chat import Answer, body, picture, post

COLOURS = ("red", "green", "blue", "yellow")
PAUSE_SECONDS = 0.5
"""A steady trickle: on 2 cores more would only slow the start of new engines."""


@contextmanager
def load(url: str, *, clients: int = 2, keep_alive: bool = False) -> Iterator[list[tuple[str, Answer]]]:
    """Let `clients` ask until the block ends, every other one for streams; yields the colours shown and the answers.

    With `keep_alive` each keeps to its connection, else each request has one of its own.
    """
    got: list[tuple[str, Answer]] = []
    over, threads = threading.Event(), []

    def client(number: int) -> None:
        with httpx.Client() as kept:
            while not over.is_set():
                colour = COLOURS[(number + len(got)) % len(COLOURS)]
                request = body([picture(colour)], stream=bool(number % 2))
                try:
                    answer = post(url, request, stream=kept.stream if keep_alive else httpx.stream)
                except (httpx.TransportError, AssertionError) as error:
                    answer = Answer(0, repr(error), httpx.Headers())
                got.append((colour, answer))
                time.sleep(PAUSE_SECONDS)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield got
    finally:
        over.set()
        for thread in threads:
            thread.join()


def wrong(got: list[tuple[str, Answer]]) -> list[tuple[str, int, str]]:
    """Answers that are not a 200 with the right colour; the status is 0 where the connection broke."""
    return [(colour, a.status, a.text[:300]) for colour, a in got if (a.status, a.text) != (200, colour)]
