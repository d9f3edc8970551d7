"""The command lines that vLLM documents for its own proxy start this one.

From disagg_1e1pd_example.sh, disagg_1e1p1d_example.sh and the README beside them, in the sdist of vLLM 0.33.0
(examples/disaggregated/disaggregated_encoder).
"""

from __future__ import annotations

import shlex
from contextlib import AsyncExitStack

import pytest

from epd.api.names import Role
from protocol.proxy import stubs
from protocol.proxy.processes import running
from protocol.proxy.stubs import StubEngine

E_PD = """--host "0.0.0.0" --port "0"
    --encode-servers-urls "http://localhost:{e0}" --prefill-servers-urls "disable"
    --decode-servers-urls "http://localhost:{a0}" """
E_P_D = """--host "0.0.0.0" --port "0"
    --encode-servers-urls "http://localhost:{e0}" --prefill-servers-urls "http://localhost:{p0}"
    --decode-servers-urls "http://localhost:{d0}" """
SEVERAL = """--encode-servers-urls "http://127.0.0.1:{e0},http://127.0.0.1:{e1}" --prefill-servers-urls "none"
    --decode-servers-urls "http://127.0.0.1:{a0},http://127.0.0.1:{a1}" --log-requests --no-rewrite --decode-retries 1
    --probe-interval 5 --probe-timeout 2 --fail-threshold 3 --ec-consumer-dp-size 1"""
ROLES = {"e": Role.ENCODE, "p": Role.PREFILL, "d": Role.DECODE, "a": Role.PREFILL_DECODE}
NAMES = ("e0", "e1", "p0", "d0", "a0", "a1")


@pytest.mark.parametrize("line", [E_PD, E_P_D, SEVERAL], ids=["1e1pd", "1e1p1d", "several of each"])
async def test_a_documented_command_line_answers(line: str) -> None:
    engines = {
        name: StubEngine(name=name, role=ROLES[name[0]], behave=stubs.encode if name[0] == "e" else stubs.generate)
        for name in NAMES
        if f"{{{name}}}" in line
    }
    async with AsyncExitStack() as stack:
        for engine in engines.values():
            await stack.enter_async_context(engine.serve())
        ports = {name: engine.address.rpartition(":")[2] for name, engine in engines.items()}
        proxy = await stack.enter_async_context(running(*shlex.split(line.format(**ports))))
        await proxy.ready(200)
        for stream in (False, True):
            answer = await proxy.chat(stream=stream)
            assert (answer.status, answer.headers["x-epd-encode"]) == (200, "encoded")
            assert (await answer.read()).endswith(stubs.DONE if stream else b"}")
        assert (await proxy.http.get(f"{proxy.data}/v1/models")).status == 200
        assert (await proxy.http.get(f"{proxy.data}/health")).status == 200
        by_role = {role: sum(len(e.requests) for e in engines.values() if e.role is role) for role in ROLES.values()}
        assert by_role[Role.ENCODE] == 2
        legs = (Role.PREFILL, Role.DECODE) if "p0" in engines else (Role.PREFILL_DECODE,)
        assert all(by_role[role] == 2 for role in legs)
