"""TLS on the data port, on both loops: what is served, and a certificate that changes under open connections."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from epd.proxy.listening import Listener
from epd.proxy.tls import Certificate
from unit.proxy.recorder import Recorder, statuses

FILES = Path(__file__).parent / "tls"
GET = b"GET / HTTP/1.1\r\nHost: p\r\n\r\n"
LAST = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def install(directory: Path, *, chain: str, key: str) -> None:
    shutil.copyfile(FILES / chain, directory / "tls.crt")
    shutil.copyfile(FILES / key, directory / "tls.key")


async def connect(listener: Listener) -> Streams:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    host, _, port = listener.addresses[0].rpartition(":")
    return await asyncio.open_connection(host, int(port), ssl=context)


def certificate_of(streams: Streams) -> str:
    return ssl.DER_cert_to_PEM_cert(streams[1].get_extra_info("ssl_object").getpeercert(binary_form=True))


def pem(chain: str) -> str:
    return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert((FILES / chain).read_text()))


async def ask(streams: Streams) -> list[int]:
    streams[1].write(GET)
    return statuses(await asyncio.wait_for(streams[0].readuntil(b"ok"), 10))


async def follow(directory: Path) -> None:
    install(directory, chain="ca.crt", key="key.pem")
    certificate = Certificate(chain=directory / "tls.crt", key=directory / "tls.key")
    listener = Listener(Recorder(), context=certificate.context)
    await listener.listen("127.0.0.1", 0)
    old = await connect(listener)
    assert await ask(old) == [200]
    assert not certificate.refresh()

    install(directory, chain="next.crt", key="next.pem")
    assert certificate.refresh()
    new = await connect(listener)
    assert (certificate_of(old), certificate_of(new)) == (pem("ca.crt"), pem("next.crt"))
    assert (await ask(old), await ask(new)) == ([200], [200])

    install(directory, chain="ca.crt", key="next.pem")
    assert not certificate.refresh()
    (directory / "tls.key").unlink()
    assert not certificate.refresh()
    late = await connect(listener)
    assert certificate_of(late) == pem("next.crt")

    late[1].write(b"nonsense\r\n\r\n")
    assert statuses(await asyncio.wait_for(late[0].readuntil(b"}}"), 10)) == [400]
    old[1].write(LAST)
    # to the end, which an abort would make an error
    assert statuses(await asyncio.wait_for(old[0].read(), 10)) == [200]
    for _, writer in (old, new, late):
        writer.close()
    await listener.close(5)
    assert listener.connections == 0


@pytest.mark.parametrize("loop", LOOPS)
def test_a_new_certificate_is_taken_and_no_connection_dropped(loop: str, tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(follow(tmp_path))


async def leave() -> None:
    recorder = Recorder()

    async def never(turn: object) -> object:
        return await asyncio.Event().wait()

    recorder.answers = never  # type: ignore[assignment] # never returns
    context = Certificate(chain=FILES / "ca.crt", key=FILES / "key.pem").context
    listener = Listener(recorder, context=context)
    await listener.listen("127.0.0.1", 0)
    _, writer = await connect(listener)
    writer.write(GET)
    async with asyncio.timeout(10):
        while not recorder.turns:  # noqa: ASYNC110 - there is no Event
            await asyncio.sleep(0.001)
        writer.close()
        while not recorder.turns[0].ends:  # noqa: ASYNC110 - there is no Event
            await asyncio.sleep(0.001)
    assert (recorder.turns[0].cancelled, recorder.turns[0].ends) == (True, [True])
    await listener.close(1)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_leaves_cancels_the_task(loop: str) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(leave())


async def fail_to_shake_hands() -> tuple[int, list[int]]:
    recorder = Recorder()
    listener = Listener(recorder, context=Certificate(chain=FILES / "ca.crt", key=FILES / "key.pem").context)
    await listener.listen("127.0.0.1", 0)
    host, _, port = listener.addresses[0].rpartition(":")
    for sent in (b"", GET):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        if sent:
            await asyncio.wait_for(reader.read(), 10)
        writer.close()
    good = await connect(listener)
    answered = await ask(good)
    connections = listener.connections
    listener.stop()
    good[1].close()
    await listener.close(5)
    return connections, answered


@pytest.mark.parametrize("loop", LOOPS)
def test_a_handshake_that_fails_leaves_nothing_to_stop(loop: str) -> None:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        assert runner.run(fail_to_shake_hands()) == (1, [200])


def test_files_that_are_no_certificate_end_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"tls\.crt"):
        Certificate(chain=tmp_path / "tls.crt", key=tmp_path / "tls.key")
    install(tmp_path, chain="ca.crt", key="next.pem")
    with pytest.raises(ssl.SSLError):
        Certificate(chain=tmp_path / "tls.crt", key=tmp_path / "tls.key")
