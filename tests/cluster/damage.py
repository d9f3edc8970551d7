"""What becomes of engines when something befalls the encoder cache: the same inputs for either connector.

    python -m cluster.damage [--connector Example|Managed] [--only WORDS ...]

Prints a table for docs/encoder-cache.md and asserts nothing: with `Example` every other line is the end of an engine,
and all take 25 minutes. That the Managed connector survives is for the tests. Needs the native node; leaves the node
and the operator, and nothing else.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path

from cluster import ensure, entries
from cluster.chat import SIZE, picture
from cluster.engine_requests import primer, with_pixels, without_pixels
from cluster.fragile import FragileVolume, fragile_deployment
from cluster.observed import ENCODER, ENGINE, Bench, Outcome
from cluster.preemption import LONG_ANSWER, Ended, preempt
from cluster.release import install
from cluster.steps import HarnessError, say

ENGINES = 3
"""Prefill engines: while one is replaced, the next is asked."""
REMEMBERS = 60
"""Seconds for which the mount believes what it knows: more than from a deletion to the request that follows."""
COLOUR, OTHER = "purple", "green"

Case = tuple[str, Callable[[], Outcome]]


def new_uuid() -> str:
    """An identifier that no engine has seen."""
    return secrets.token_hex(32)


def entry_cases(bench: Bench) -> Iterator[Case]:
    """Something befalls one entry before a request for it."""
    befallings: dict[str, Callable[[Path], object]] = {
        "nothing": lambda file: None,
        **{name: befall for name, (befall, _) in entries.DAMAGE.items()},
        "another picture's entry": lambda file: shutil.copyfile(_other(bench), file),
        "deleted between look and read": bench.volume.delete_unseen,
    }

    def befallen(befall: Callable[[Path], object], pixels: bool) -> Outcome:
        uuid, url = new_uuid(), picture(COLOUR)
        metadata = bench.primed({uuid: url})[uuid]
        befall(bench.file(uuid))
        return bench.asked(ENGINE, with_pixels(uuid, url) if pixels else without_pixels(uuid, metadata), COLOUR)

    def preempted() -> Outcome:
        told = bench.primed({new_uuid(): picture(colour) for colour in ("red", "blue", "yellow")})

        def send(engine: str) -> str:
            found = preempt(engine, told, lambda uuid: bench.file(uuid).unlink())
            return f"{found.streams.count(Ended(LONG_ANSWER, complete=True))} of {len(told)} streams complete"

        return bench.observed(ENGINE, send)

    yield "preempted without pixels, entry deleted meanwhile", preempted
    for name, befall in befallings.items():
        for pixels in (True, False):
            says = f"{name}, request {'with' if pixels else 'without'} pixels"
            yield says, lambda befall=befall, pixels=pixels: befallen(befall, pixels)


def _other(bench: Bench) -> Path:
    uuid = new_uuid()
    bench.primed({uuid: picture(OTHER)})
    return bench.file(uuid)


def identifier_cases(bench: Bench) -> Iterator[Case]:
    """Identifiers that clients choose."""

    def again(first: int, second: int) -> Outcome:
        uuid = new_uuid()
        bench.primed({uuid: picture(OTHER, size=first)})
        return bench.asked(ENGINE, with_pixels(uuid, picture(COLOUR, size=second)), COLOUR)

    def hostile(pattern: str) -> Outcome:
        mark, pod = new_uuid(), bench.ready(ENCODER)["metadata"]["name"]
        outcome = bench.asked(ENCODER, primer({pattern.replace("{}", mark): picture(COLOUR)}))
        lives = outcome.engine.startswith("lives")
        outside = lives and mark in bench.epd.run("exec", pod, "--", "ls", "-a", "/tmp")
        return Outcome(outcome.answer, outcome.engine, "written outside the store" if outside else outcome.note)

    yield "same uuid, larger picture", lambda: again(SIZE // 2, SIZE)
    yield "same uuid, smaller picture", lambda: again(SIZE * 2, SIZE)
    for pattern in entries.HOSTILE:
        yield f"uuid {pattern!r} to the encoder", lambda pattern=pattern: hostile(pattern)


def volume_cases(bench: Bench) -> Iterator[Case]:
    """The volume fails, for the encoder and for the prefill side."""
    faults: dict[str, Callable[[FragileVolume], AbstractContextManager[None]]] = {
        "full volume": FragileVolume.full,
        "read-only mount": FragileVolume.read_only,
        "hung mount": FragileVolume.hung,
    }

    def new(role: str, fault: AbstractContextManager[None]) -> Outcome:
        uuid, url = new_uuid(), picture(COLOUR)
        if role == ENCODER:
            return bench.asked(role, primer({uuid: url}), during=fault)
        return bench.asked(role, with_pixels(uuid, url), COLOUR, during=fault)

    def kept(pixels: bool, fault: AbstractContextManager[None]) -> Outcome:
        uuid, url = new_uuid(), picture(COLOUR)
        metadata = bench.primed({uuid: url})[uuid]
        request = with_pixels(uuid, url) if pixels else without_pixels(uuid, metadata)
        return bench.asked(ENGINE, request, COLOUR, during=fault)

    def of(name: str, fault: Callable[[FragileVolume], AbstractContextManager[None]]) -> Iterator[Case]:
        yield f"{name}, encoder, new picture", lambda: new(ENCODER, fault(bench.volume))
        yield f"{name}, prefill, new picture", lambda: new(ENGINE, fault(bench.volume))
        yield f"{name}, prefill, entry there, with pixels", lambda: kept(True, fault(bench.volume))
        yield f"{name}, prefill, entry there, without pixels", lambda: kept(False, fault(bench.volume))

    for name, fault in faults.items():
        yield from of(name, fault)


def rows(bench: Bench, only: Sequence[str]) -> Iterator[str]:
    """Play the cases whose names hold one of `only`, or all; a Markdown row of each, as it ends."""
    for name, play in chain(entry_cases(bench), identifier_cases(bench), volume_cases(bench)):
        if not only or any(words in name for words in only):
            outcome = play()
            note = outcome.note.replace("|", "\\|")
            yield f"| {name} | {outcome.answer} | {outcome.engine} | {note} |"


def main() -> int:
    """Play; 1 if it could not be played to its end."""
    parser = argparse.ArgumentParser(
        prog="python -m cluster.damage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connector", choices=("Example", "Managed"), default="Example")
    parser.add_argument("--only", metavar="WORDS", nargs="*", default=(), help="cases whose names hold one of these")
    arguments = parser.parse_args()
    try:
        cluster = ensure()
        if cluster.provider != "native":
            raise HarnessError(f"it mounts a volume on this machine, where {cluster.provider} does not see it")
        install(cluster)
        with cluster.namespace("damage") as namespace:
            cluster.model_claim(namespace)
            made = fragile_deployment(
                cluster, namespace, connector=arguments.connector, remembers=REMEMBERS, engines=ENGINES
            )
            with made as fragile:
                say(f"| befalls | answer with {arguments.connector} | engine | |\n| --- | --- | --- | --- |")
                for row in rows(Bench(fragile, arguments.connector), arguments.only):
                    say(row)
    except (HarnessError, AssertionError) as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
