"""E|P|D with real vLLM on this machine's CPU, without Kubernetes: one engine that encodes, prefills and decodes each.

    make legs

The encoder hands embeddings to the prefill engine by the Managed connector, that hands its KV cache to the decode
engine by vLLM's ExampleConnector (files), and `epd-proxy` stands before them with the flags of vLLM's own proxy. The
decode engine reads no encoder cache, so an answer that names the colours shows that they came through all three.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from cluster import engine, paths, processes
from cluster.chat import ask, picture
from cluster.client import MODEL
from cluster.deployed import sample
from cluster.steps import HarnessError, say, step, until

COLOURS = ("green", "purple", "white")
"""With three pictures all but the last tokens of the prompt fill whole blocks, which alone are handed over."""
BLOCK_TOKENS = 32
"""The least that vLLM takes on CPU, where a block has 128 tokens by default: more than the prompt."""
READY_SECONDS = 600
"""Three engines are up in 2 min on 2 idle cores."""

FLAGS = ("--served-model-name", "tinyvlm", "--dtype", "float32", "--max-model-len", "2048", "--max-num-seqs", "8")
PLAIN = (*FLAGS, "--enforce-eager", "--skip-mm-profiling")
ENCODER = ("--mm-encoder-only", "--no-enable-prefix-caching", "--max-num-batched-tokens", "8192")
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Server:
    """A process that serves HTTP on loopback."""

    name: str
    url: str


def by_cache(folder: Path, role: str) -> tuple[str, str]:
    """The flag that hands embeddings on, as the operator writes it."""
    extra = {
        "claim": "local/encoder-cache",
        "inputs": {"name": "tinyvlm", "dtype": "float32"},
        "min_idle_seconds": 1800,
        "root": str(folder),
        "version": "v1-tinyvlm-09a1ccc3afd6",
    }
    config = {"ec_connector": "ManagedECConnector", "ec_connector_module_path": "epd_connector.managed"}
    return "--ec-transfer-config", json.dumps({**config, "ec_role": role, "ec_connector_extra_config": extra})


def by_kv(folder: Path, role: str) -> tuple[str, ...]:
    """The flags that hand the KV cache on."""
    extra = {"shared_storage_path": str(folder)}
    config = {"kv_connector": "ExampleConnector", "kv_role": role, "kv_connector_extra_config": extra}
    return "--kv-transfer-config", json.dumps(config), "--block-size", str(BLOCK_TOKENS)


@contextmanager
def process(name: str, argv: Sequence[object], *, state: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """A background process, ended with the block."""
    processes.start(name, argv, state=state, env=environment)
    try:
        yield
    finally:
        processes.stop(name, state=state)


@contextmanager
def vllm(name: str, port: int, flags: Sequence[str], *, state: Path) -> Iterator[Server]:
    """An engine that starts; `ready` waits for it."""
    home = state / name
    home.mkdir()
    environment = ENVIRONMENT | {"HOME": str(home), "PYTHONPATH": str(state / "connector"), "EPD_POD_UID": name}
    command = [engine.environment() / "bin" / "vllm", "serve", MODEL, "--host", "127.0.0.1", "--port", port, *PLAIN]
    with process(name, [*command, *flags], state=state, environment=environment):
        yield Server(name, f"http://127.0.0.1:{port}")


def ready(server: Server, *, state: Path, path: str = "/health") -> None:
    """Wait until the server answers 200. Raises HarnessError: it ended, or does not come."""

    def answers() -> bool:
        if not processes.alive(server.name, state=state):
            raise HarnessError(f"{server.name} ended:\n{processes.log_tail(server.name, state=state, lines=40)}")
        try:
            return httpx.get(server.url + path, timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    until(f"{server.name} ready", answers, seconds=READY_SECONDS)


def proxy_command(encoder: Server, prefill: Server, decode: Server, port: int) -> list[object]:
    """`epd-proxy` with the flags of vLLM's script."""
    servers = ("--encode-servers-urls", encoder.url, "--prefill-servers-urls", prefill.url)
    command = [sys.executable, "-m", "epd.proxy.main", "--host", "127.0.0.1", "--port", port, "--admin-port", port + 1]
    return [*command, *servers, "--decode-servers-urls", decode.url, "--rewrite", "--connector", "Managed"]


def received(decode: Server, *, state: Path) -> list[int]:
    """Tokens whose KV cache the decode engine took over, by request."""
    log = (state / "log" / f"{decode.name}.log").read_text()
    return [int(tokens) for tokens in re.findall(r"Inject KV cache of (\d+) tokens", log)]


def question(proxy: Server, decode: Server, *, state: Path) -> None:
    """Ask for colours, whole and streamed. Raises HarnessError: an answer is wrong, or came another way."""
    for stream in (False, True):
        before = len(received(decode, state=state))
        answer = ask(proxy.url, [picture(colour) for colour in COLOURS], stream=stream)
        if (answer.status, answer.text) != (200, " and ".join(COLOURS)):
            raise HarnessError(f"{answer.status}: {answer.text}")
        if len(received(decode, state=state)) == before:
            raise HarnessError("the decode engine took nothing over")
        names = ("x-epd-encode", "x-epd-encoders", "x-epd-prefill", "x-epd-decode")
        told: dict[str, Any] = {name: answer.headers.get(name) for name in names}
        say(f"    {'streamed' if stream else 'whole'}: {answer.text}  {told}")
    page = httpx.get(f"{decode.url}/metrics", timeout=10).text
    say(f"    tokens that decode took over: {sample(page, 'vllm:external_prefix_cache_hits_total'):.0f}")


def main() -> None:
    """Bring all up, ask, and take all down."""
    began = time.monotonic()
    with ExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="epd-legs-")))
        for folder in ("connector", "cache", "kv"):
            (state / folder).mkdir()
        (state / "connector" / "epd_connector").symlink_to(paths.REPO / "operator" / "epd" / "connector")
        cache, kv = state / "cache", state / "kv"
        with step("start an encoder, a prefill engine and a decode engine", may_take="2 min"):
            flags = {
                "encode": (*ENCODER, *by_cache(cache, "ec_producer")),
                "prefill": (*by_cache(cache, "ec_consumer"), *by_kv(kv, "kv_producer")),
                "decode": by_kv(kv, "kv_consumer"),
            }
            engines = [
                stack.enter_context(vllm(name, 18100 + number, more, state=state))
                for number, (name, more) in enumerate(flags.items())
            ]
            for server in engines:
                ready(server, state=state)
        proxy = Server("proxy", "http://127.0.0.1:18110")
        environment = {"PYTHONPATH": str(paths.REPO / "operator")}
        stack.enter_context(process("proxy", proxy_command(*engines, 18110), state=state, environment=environment))
        ready(proxy, state=state)
        question(proxy, engines[-1], state=state)
    say(f"Three legs took {time.monotonic() - began:.0f} s.")


if __name__ == "__main__":
    try:
        main()
    except HarnessError as error:
        sys.exit(str(error))
