from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path

import pytest
import uvloop

from epd.proxy.listening import Listener
from unit.proxy.recorder import RecordedTurn, Recorder, ok, statuses

LAST = b"GET / HTTP/1.1\r\nHost: p\r\nConnection: close\r\n\r\n"
KEPT = b"GET / HTTP/1.1\r\nHost: p\r\n\r\n"


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> list[int]:
    writer.write(LAST)
    received = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return statuses(received)


def port_of(listener: Listener) -> int:
    return int(listener.addresses[0].rpartition(":")[2])


async def test_tcp() -> None:
    listener = Listener(Recorder())
    await listener.listen("127.0.0.1", 0)
    assert await ask(*await asyncio.open_connection("127.0.0.1", port_of(listener))) == [200]
    await listener.close(1)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port_of(listener))


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_two_colons_are_ipv6_and_ipv4() -> None:
    listener = Listener(Recorder())
    await listener.listen("::", 0)
    assert listener.addresses[0].startswith("[::]:")
    for host in ("127.0.0.1", "::1"):
        assert await ask(*await asyncio.open_connection(host, port_of(listener))) == [200]
    await listener.close(1)


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_unix_socket_that_a_dead_process_left_is_replaced(factory: object, tmp_path: Path) -> None:
    path = tmp_path / "s"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()

    async def run() -> None:
        listener, second = Listener(Recorder()), Listener(Recorder())
        await listener.listen_on_path(path)
        assert listener.addresses == (f"unix:{path}",)
        with pytest.raises(OSError, match="in use"):
            await second.listen_on_path(path)
        assert await ask(*await asyncio.open_unix_connection(path)) == [200]
        await listener.close(1)

    with asyncio.Runner(loop_factory=factory) as runner:  # type: ignore[arg-type] # either of the two
        runner.run(run())
    assert not path.exists()


async def test_a_file_that_is_no_socket_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("kept")
    with pytest.raises(OSError, match="in use"):
        await Listener(Recorder()).listen_on_path(path)
    assert (path.read_text(), stat.S_ISREG(path.stat().st_mode)) == ("kept", True)


async def test_stopping_closes_what_is_idle_and_lets_the_rest_end() -> None:
    release = asyncio.Event()

    async def answers(turn: RecordedTurn) -> object:
        await release.wait()
        return ok()

    recorder = Recorder(answers=answers)  # type: ignore[arg-type] # a Reply
    listener = Listener(recorder)
    await listener.listen("127.0.0.1", 0)
    idle, _ = await asyncio.open_connection("127.0.0.1", port_of(listener))
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
    writer.write(KEPT)
    async with asyncio.timeout(10):
        while listener.connections < 2 or not recorder.turns:  # noqa: ASYNC110 - there is no Event
            await asyncio.sleep(0.001)
    recorder.draining = True
    listener.stop()
    assert await asyncio.wait_for(idle.read(), 10) == b""
    assert listener.connections == 1
    closing = asyncio.create_task(listener.close(10))
    release.set()
    assert statuses(await asyncio.wait_for(reader.read(), 10)) == [200]
    writer.close()
    await asyncio.wait_for(closing, 10)
    assert listener.connections == 0


async def test_what_does_not_end_is_broken_off() -> None:
    async def answers(turn: RecordedTurn) -> object:
        return await asyncio.Event().wait()

    recorder = Recorder(answers=answers)  # type: ignore[arg-type] # never returns
    listener = Listener(recorder)
    await listener.listen("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(listener))
    writer.write(KEPT)
    async with asyncio.timeout(10):
        while not recorder.turns:  # noqa: ASYNC110 - there is no Event
            await asyncio.sleep(0.001)
    await listener.close(0.01)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    assert (recorder.turns[0].cancelled, recorder.turns[0].ends) == (True, [False])
    writer.close()


async def test_a_thousand_idle_connections_are_a_set_and_little_else() -> None:
    listener = Listener(Recorder())
    await listener.listen("127.0.0.1", 0)
    before = len(asyncio.all_tasks())
    writers = [(await asyncio.open_connection("127.0.0.1", port_of(listener)))[1] for _ in range(1000)]
    async with asyncio.timeout(10):
        while listener.connections < 1000:  # noqa: ASYNC110 - there is no Event
            await asyncio.sleep(0.001)
    assert len(asyncio.all_tasks()) == before
    assert await ask(*await asyncio.open_connection("127.0.0.1", port_of(listener))) == [200]
    for writer in writers:
        writer.close()
    await listener.close(5)
    assert listener.connections == 0
