"""What becomes of engines when something befalls the encoder cache: the same inputs for either connector.

    python -m cluster.damage [--connector Example|Managed] [--only WORDS ...]

Prints a table for docs/encoder-cache.md and asserts nothing: with `Example` every other line is the end of an engine,
and all take 25 minutes. That the Managed connector survives is for the tests. Needs the native node; leaves the node
and the operator, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import httpx

from cluster import ensure, entries
from cluster.chat import SIZE, body, picture, post
from cluster.engine_requests import Metadata, prime, primer, with_pixels, without_pixels
from cluster.fragile import Fragile, FragileVolume, fragile_deployment
from cluster.preemption import LONG_ANSWER, Ended, preempt
from cluster.release import install
from cluster.steps import HarnessError, say, until

PATIENCE = 20.0
"""Seconds for an answer; on two busy cores an engine that is well takes two, and Managed's deadlines two each."""
RESTART_SECONDS = 60.0
"""From a dead engine's last answer to the kubelet's new container; vLLM's API server exits within about 5 s."""
READY_SECONDS = 240.0
"""Of an engine that starts alone."""
ENGINES = 3
"""Prefill engines: while one is replaced, the next is asked."""
REMEMBERS = 60
"""Seconds for which the mount believes what it knows: more than from a deletion to the request that follows."""
COLOUR, OTHER = "purple", "green"
IN_WORKER = re.compile(r"Worker failed with error '(.*?)', please check")
IN_CORE = re.compile(r"EngineCore.*?\b((?:\w+\.)*\w*Error\b: .*)")
"""How vLLM 0.32 logs the error that ended the engine core: one of a worker's, or its own."""
ENCODER, ENGINE = "encode", "prefill-decode"


@dataclass(frozen=True)
class Outcome:
    """What came back, and what became of the engine that was asked."""

    answer: str
    engine: str
    note: str = ""


Case = tuple[str, Callable[[], Outcome]]


class Bench:
    """One deployment, whose engines are replaced when they die."""

    def __init__(self, fragile: Fragile, connector: str) -> None:
        self.epd, self.volume, self._connector = fragile.epd, fragile.volume, connector
        self._version = self.epd.get()["status"]["modelVersion"]

    def file(self, uuid: str) -> Path:
        """Where an entry lies."""
        where = entries.path if self._connector == "Managed" else entries.example_path
        return where(self.volume.folder, self._version, uuid)

    def primed(self, items: Mapping[str, str]) -> dict[str, Metadata]:
        """Let the encoder write entries that any damage fits."""
        told = prime(f"http://{self.ready(ENCODER)['status']['podIP']}:8000", items)
        if self._connector == "Example":
            for uuid in told:
                entries.seal(self.file(uuid), uuid, self._version)
        return told

    def asked(
        self,
        role: str,
        request: dict[str, Any],
        colour: str = "",
        *,
        during: AbstractContextManager[None] | None = None,
    ) -> Outcome:
        """Send a request; see whether its answer is `colour` and how the engine is; make all well again."""
        return self.observed(role, lambda engine: _answer(engine, request, colour), during=during)

    def observed(
        self, role: str, send: Callable[[str], str], *, during: AbstractContextManager[None] | None = None
    ) -> Outcome:
        """Do something to the engine at a base URL, which says what it answered; see and mend as `asked` does."""
        pod = self.ready(role)
        engine, restarts = f"http://{pod['status']['podIP']}:8000", _restarts(pod)
        with during or nullcontext():
            answer = send(engine)
            health, text = _health(engine), _text(engine)
        if text == "200":
            return Outcome(answer, f"lives, /health {health}")
        if text == "none" and health == "200":
            if during is None or _text(engine) != "200":
                self._replace(pod)
            return Outcome(answer, "hangs, /health 200")
        until("the engine's restart", lambda: self._restarts(pod) > restarts, seconds=RESTART_SECONDS)
        why = self._cause(pod)
        self._replace(pod)
        return Outcome(answer, f"dies, /health {health}, container restarted", why)

    def ready(self, role: str) -> dict[str, Any]:
        """A pod of the role, waited for."""
        until(f"{role} Ready", lambda: any(map(_ready, self.epd.pods(role))), seconds=READY_SECONDS, every=1)
        return next(filter(_ready, self.epd.pods(role)))

    def _restarts(self, pod: dict[str, Any]) -> int:
        return _restarts(json.loads(self.epd.run("get", "pod", pod["metadata"]["name"], "-o", "json")))

    def _cause(self, pod: dict[str, Any]) -> str:
        """The error that ended the container before this one, as vLLM logged it."""
        until("the old container's log", lambda: bool(self._log(pod)), seconds=RESTART_SECONDS, every=1)
        log = self._log(pod)
        found = IN_WORKER.findall(log) or [said for said in IN_CORE.findall(log) if "EngineDeadError" not in said]
        return found[-1][:120] if found else ""

    def _log(self, pod: dict[str, Any]) -> str:
        try:
            return self.epd.run("logs", pod["metadata"]["name"], "--previous", "--tail=400")
        except HarnessError:  # the kubelet has not looked yet
            return ""

    def _replace(self, pod: dict[str, Any]) -> None:
        """Another pod, for which the kubelet does not back off."""
        self.epd.run("delete", "pod", pod["metadata"]["name"], "--grace-period=1", "--timeout=60s")


def _restarts(pod: dict[str, Any]) -> int:
    return sum(status["restartCount"] for status in pod["status"].get("containerStatuses", []))


def _ready(pod: dict[str, Any]) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))


def _answer(engine: str, request: dict[str, Any], colour: str) -> str:
    try:
        answer = post(engine, request, seconds=PATIENCE)
    except httpx.TimeoutException:
        return f"none within {PATIENCE:.0f} s"
    except httpx.TransportError:
        return "connection closed"
    if answer.status != 200 or not colour:
        return str(answer.status)
    return "200, right colour" if answer.text == colour else f"200, WRONG: {answer.text}, not {colour}"


def _health(engine: str) -> str:
    try:
        return str(httpx.get(f"{engine}/health", timeout=10).status_code)
    except httpx.TransportError:
        return "gone"


def _text(engine: str) -> str:
    """Status of a question without a picture: what an engine that is well always answers."""
    try:
        return str(post(engine, body([]), seconds=PATIENCE).status)
    except httpx.TimeoutException:
        return "none"
    except httpx.TransportError:
        return "gone"


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
