"""Time to first token of new and of repeated pictures through the whole stack: proxy, encoder, store, prefill side.

    python benchmarks/ttft.py [--rounds 60]

Needs the node (`python -m cluster ensure`, tests/ on PYTHONPATH); says so and measures nothing where none is up.

The peer, in the same rounds: a deployment of the same engines without encoders, whose prefill side encodes by itself
(`encoderFailurePolicy: Fallback`). Four requests a round, one at a time, in turn: a new and a repeated picture to each.
Prefill sides keep four pictures in memory and prefixes not at all, and repeated pictures come round after fifteen
others, so what is repeated comes from the store or is encoded again; preprocessed pictures every engine keeps. The
model has 1.6 M parameters: encoding costs it next to nothing, so the ratios say what the way through the store costs,
not what it saves a real encoder.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import httpx

from cluster import providers
from cluster.chat import COLOURS, body, picture
from cluster.client import Cluster
from cluster.conftest import example
from cluster.deployed import Deployed
from cluster.engine_requests import counters
from cluster.release import install
from cluster.steps import HarnessError

KNOWN = 16
"""Pictures that are asked for again: four times what a prefill side keeps."""
ENGINE = ["--no-enable-prefix-caching", "--max-num-batched-tokens=64"]
"""The second is the size of the engine's own cache too: four pictures of 16 embeddings."""
STORE, LOCAL = "store", "local"
EXPECTED = {STORE: "encoded", LOCAL: "fallback"}
"""`x-epd-encode` of each deployment."""


def main(rounds: int) -> None:
    try:
        provider = providers.choose()
        if not providers.running(provider):
            raise HarnessError("no node is up: python -m cluster ensure")
    except HarnessError as error:
        print(f"skipped: {error}")
        return
    cluster = providers.connect(provider)
    install(cluster)
    with cluster.namespace("ttft") as namespace:
        cluster.model_claim(namespace)
        found = {name: deployed(cluster, namespace, name) for name in (STORE, LOCAL)}
        for each in found.values():
            each.wait_ready()
        measure(found, rounds)
        for name, each in found.items():
            each.run("delete", "epd", name, "--cascade=foreground", "--timeout=180s")


def deployed(cluster: Cluster, namespace: str, name: str) -> Deployed:
    """Apply the demo with these engines; the local one without encoders."""
    manifest: dict[str, Any] = copy.deepcopy(example("01-cpu-demo.yaml"))
    manifest["metadata"]["name"] = name
    spec = manifest["spec"]
    spec["prefillDecode"]["args"] = ENGINE
    if name == LOCAL:
        spec["encode"]["replicas"] = 0
    made = Deployed(cluster.kubectl, namespace, name)
    made.apply(manifest)
    return made


def measure(found: dict[str, Deployed], rounds: int) -> None:
    """Ask in turn, and print medians and ratios."""
    known = [(colour, picture(colour)) for colour in COLOURS for _ in range(KNOWN // len(COLOURS))]
    colours = list(COLOURS)
    clients = {name: (httpx.Client(base_url=each.url(), timeout=60), EXPECTED[name]) for name, each in found.items()}
    for client, how in clients.values():  # the first time is the store's, and the engines' warm-up
        for colour, url in known:
            first_token(client, colour, url, how=how)
    seconds: dict[tuple[str, str], list[float]] = {}
    engines = {name: each.engine("prefill-decode") for name, each in found.items()}
    before = {name: counters(engine) for name, engine in engines.items()}
    for number in range(rounds):
        asked: list[tuple[str, str, Callable[[], tuple[str, str]]]] = []
        for name in clients:
            colour = colours[number % len(colours)]
            asked.append((name, "new", lambda colour=colour: (colour, picture(colour))))
            asked.append((name, "repeated", lambda number=number: known[number % KNOWN]))
        for name, kind, shown in asked[number % 4 :] + asked[: number % 4]:
            client, how = clients[name]
            seconds.setdefault((name, kind), []).append(first_token(client, *shown(), how=how))
    told = {}
    for name, engine in engines.items():
        after = counters(engine)
        told[name] = {what: after[what] - before[name][what] for what in ("hits", "misses", "local_encodes")}
    report(seconds, rounds, told)


def first_token(client: httpx.Client, colour: str, url: str, *, how: str) -> float:
    """Return the seconds to the first content of a streamed answer. Raises SystemExit if it is not the right one."""
    request = body([url], stream=True)
    first, text = 0.0, ""
    began = time.perf_counter()
    with client.stream("POST", "/v1/chat/completions", json=request) as response:
        if response.status_code != 200 or response.headers["x-epd-encode"] != how:
            response.read()
            raise SystemExit(f"{response.status_code}, {response.headers.get('x-epd-encode')}: {response.text[:300]}")
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            choices = json.loads(line.removeprefix("data: "))["choices"]
            content = (choices[0]["delta"].get("content") or "") if choices else ""
            if content and not first:
                first = time.perf_counter() - began
            text += content
    if text.strip() != colour:
        raise SystemExit(f"wrong: {text!r} of a {colour} picture")
    return first


def report(seconds: dict[tuple[str, str], list[float]], rounds: int, told: dict[str, dict[str, float]]) -> None:
    """Print what was measured."""
    says = {STORE: "encoder, store, prefill side", LOCAL: "peer: prefill side encodes by itself"}
    medians = {key: 1000 * statistics.median(times) for key, times in seconds.items()}
    print(f"time to first token in ms, {rounds} rounds")
    print(f"{'':40}{'':10}{'median':>8}{'p95':>8}")
    for (name, kind), times in sorted(seconds.items(), reverse=True):
        p95 = 1000 * statistics.quantiles(times, n=20)[18]
        print(f"{says[name]:40}{kind:10}{medians[name, kind]:>8.1f}{p95:>8.1f}")
    for name in (STORE, LOCAL):
        print(f"{says[name]:40}repeated against new: {medians[name, 'repeated'] / medians[name, 'new']:.2f}")
        print(f"{says[name]:40}connector: {', '.join(f'{what} {count:g}' for what, count in told[name].items())}")
    for kind in ("new", "repeated"):
        print(f"{kind:40}store against peer:   {medians[STORE, kind] / medians[LOCAL, kind]:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    main(parser.parse_args().rounds)
