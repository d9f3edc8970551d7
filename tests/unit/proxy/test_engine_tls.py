"""TLS to engines over real sockets: who is believed, what is said of the others, and files that change."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from epd.proxy import engine_tls
from epd.proxy.engine_tls import Complaints, EngineTrust, why
from epd.proxy.pool import HttpTransport
from epd.proxy.settings import EngineTls
from epd.proxy.transport import Cause, TransportError
from unit.proxy.certificates import NAME, Certificates, certificates
from unit.proxy.rawengine import OK, Peer, RawEngine, answers, raw_engine

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(scope="session")
def made() -> Certificates:
    return certificates()


@pytest.fixture(params=LOOPS)
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=LOOPS[request.param])


async def asked(transport: HttpTransport, engine: RawEngine) -> bytes | TransportError:
    """What the engine says, or why there is nothing to hear."""
    try:
        async with asyncio.timeout(10):
            return await (await transport.send(engine.call(body=b"x" * 100))).read()
    except TransportError as error:
        return error


ENGINES = {
    "the address": ("engine", "", "ca.pem", ""),
    "the name": ("pod", NAME, "ca.pem", ""),
    "expired": ("expired", "", "ca.pem", "its certificate is refused: certificate has expired"),
    "not the address": ("pod", "", "ca.pem", "IP address mismatch, certificate is not valid for '127.0.0.1'"),
    "not the name": ("engine", "b.test", "ca.pem", "Hostname mismatch, certificate is not valid for 'b.test'"),
    "of somebody else": (
        "stranger",
        "",
        "ca.pem",
        "unable to get local issuer certificate (is its CA in --engine-ca?)",
    ),
    "not of the system": ("engine", "", "", "unable to get local issuer certificate (is its CA in --engine-ca?)"),
}


@pytest.mark.parametrize(("shown", "name", "ca", "words"), ENGINES.values(), ids=ENGINES)
def test_who_is_believed(
    runner: asyncio.Runner,
    made: Certificates,
    caplog: pytest.LogCaptureFixture,
    shown: str,
    name: str,
    ca: str,
    words: str,
) -> None:
    async def run() -> None:
        trust = EngineTrust(EngineTls(ca=made.path(ca) if ca else None, server_name=name))
        async with raw_engine(answers, tls=made.server(shown)) as engine, HttpTransport(tls=trust) as transport:
            found = [await asked(transport, engine) for _ in range(3)]
            if not words:
                assert (found, len(engine.peers), caplog.messages) == ([b"ok"] * 3, 1, [])
                return
            [message] = {str(each) for each in found}
            assert words in message
            assert {each.cause for each in found if isinstance(each, TransportError)} == {Cause.REFUSED}
            assert (transport._connections, transport._engines) == (set(), {})
            # once for the engine, not for each request
            [line] = caplog.messages
            assert engine.address in line
            assert words in line

    with runner:
        runner.run(run())


def test_an_engine_without_tls_is_named_as_such(
    runner: asyncio.Runner, made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async def talks(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.closed()

    async def run() -> None:
        trust = EngineTrust(EngineTls(ca=made.path("ca.pem")))
        async with raw_engine(talks) as engine, HttpTransport(tls=trust) as transport:
            engine.address = engine.address.replace("http:", "https:")
            found = await asked(transport, engine)
            assert isinstance(found, TransportError)
            assert found.cause is Cause.REFUSED
            assert "it does not speak TLS" in caplog.text

    with runner:
        runner.run(run())


@contextmanager
def blocking_engine(context: ssl.SSLContext) -> Iterator[RawEngine]:
    """One that says why it refuses a client, as OpenSSL does by itself; servers on asyncio just close."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            with accepted.dup() as same:
                with suppress(OSError), context.wrap_socket(accepted, server_side=True) as secured:
                    while secured.recv(65536):
                        secured.sendall(OK)
                # bytes that nobody reads would make the end a reset, which takes the last words with it
                with suppress(OSError):
                    same.shutdown(socket.SHUT_WR)
                    while same.recv(65536):
                        pass

    thread = threading.Thread(target=serve)
    thread.start()
    engine = RawEngine(answers, address=f"https://127.0.0.1:{listener.getsockname()[1]}")
    try:
        yield engine
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_engines_may_want_a_certificate_of_their_clients(
    runner: asyncio.Runner, made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(engine: RawEngine) -> None:
        known = EngineTls(ca=made.path("ca.pem"), certificate=made.path("proxy.pem"), key=made.path("proxy.key"))
        async with HttpTransport(tls=EngineTrust(known)) as transport:
            assert await asked(transport, engine) == b"ok"
        async with HttpTransport(tls=EngineTrust(EngineTls(ca=made.path("ca.pem")))) as transport:
            for _ in range(3):
                found = await asked(transport, engine)
                assert isinstance(found, TransportError)
                assert found.cause is Cause.REFUSED
        # its refusal may come before the handshake counts as over, or after; each pool tells of it once
        for _ in range(16):
            async with HttpTransport(tls=EngineTrust(EngineTls(ca=made.path("ca.pem")))) as transport:
                await asked(transport, engine)
        assert [line.endswith("clients (see --engine-cert)") for line in caplog.messages] == [True] * 17

    with runner, blocking_engine(made.server(clients="ca.pem")) as engine:
        runner.run(run(engine))


@pytest.mark.parametrize("shown", [False, True], ids=["anonymous", "with a certificate"])
def test_an_engine_that_hangs_up_may_want_a_certificate(
    runner: asyncio.Runner, made: Certificates, caplog: pytest.LogCaptureFixture, shown: bool
) -> None:
    async def run() -> None:
        certificate = {"certificate": made.path("proxy.pem"), "key": made.path("proxy.key")} if shown else {}
        trust = EngineTrust(EngineTls(ca=made.path("ca.pem"), **certificate))
        # on asyncio, this engine says no more than that of the test above says at the end
        clients = "other.pem" if shown else "ca.pem"
        async with (
            raw_engine(answers, tls=made.server(clients=clients)) as engine,
            HttpTransport(tls=trust) as transport,
        ):
            for _ in range(3):
                found = await asked(transport, engine)
                assert isinstance(found, TransportError)
                assert found.cause is Cause.DISCONNECTED
            lines = [line for line in caplog.messages if engine.address in line]
            assert [line.endswith("(--engine-cert)") for line in lines] == ([] if shown else [True])

    with runner:
        runner.run(run())


def test_a_large_body_goes_both_ways(runner: asyncio.Runner, made: Certificates) -> None:
    async def behave(peer: Peer) -> None:
        while True:
            body = (await peer.request()).body
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body), body)

    async def run() -> None:
        trust, body = EngineTrust(EngineTls(ca=made.path("ca.pem"))), bytes(range(256)) * (32 << 10)
        async with raw_engine(behave, tls=made.server()) as engine, HttpTransport(tls=trust) as transport:
            for _ in range(2):
                answer = await transport.send(engine.call(body=(body[:1000], memoryview(body)[1000:])))
                assert await asyncio.wait_for(answer.read(), 30) == body
            assert len(engine.peers) == 1

    with runner:
        runner.run(run())


def test_a_call_that_is_cancelled_in_the_handshake_leaves_nothing(runner: asyncio.Runner, made: Certificates) -> None:
    async def run() -> None:
        reached = asyncio.Event()

        async def silent(peer: Peer) -> None:
            await peer.reader.read(1)
            reached.set()
            await peer.closed()

        trust = EngineTrust(EngineTls(ca=made.path("ca.pem")))
        async with raw_engine(silent) as engine, HttpTransport(tls=trust) as transport:
            engine.address = engine.address.replace("http:", "https:")
            calling = asyncio.create_task(transport.send(engine.call()))
            await asyncio.wait_for(reached.wait(), 10)
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
            async with asyncio.timeout(10):
                while not engine.finished:  # noqa: ASYNC110 - there is no Event
                    await asyncio.sleep(0.001)
            assert (transport._connections, transport._engines) == (set(), {})

    with runner:
        runner.run(run())


async def test_a_ca_that_is_replaced_counts_for_new_connections(made: Certificates, tmp_path: Path) -> None:
    bundle = made.copy("other.pem", tmp_path / "ca.crt")
    trust = EngineTrust(EngineTls(ca=bundle))
    async with raw_engine(answers, tls=made.server()) as engine, HttpTransport(tls=trust) as transport:
        assert isinstance(await asked(transport, engine), TransportError)
        assert not trust.refresh()
        made.copy("ca.pem", bundle)
        assert trust.refresh()
        assert await asked(transport, engine) == b"ok"
        # what was believed before is not believed for ever
        made.copy("other.pem", bundle)
        assert trust.refresh()
        transport.close()
        assert isinstance(await asked(transport, engine), TransportError)


def test_files_that_are_nothing_are_left_alone(made: Certificates, tmp_path: Path) -> None:
    bundle = made.copy("ca.pem", tmp_path / "ca.crt")
    trust = EngineTrust(EngineTls(ca=bundle))
    context = trust.context
    bundle.write_text("half of a certific")
    assert not trust.refresh()
    bundle.unlink()
    assert not trust.refresh()
    assert trust.context is context
    for given in (EngineTls(ca=bundle), EngineTls(certificate=made.path("proxy.pem"), key=made.path("engine.key"))):
        with pytest.raises(OSError, match=r"No such file|mismatch"):
            EngineTrust(given)


def test_nothing_goes_unchecked(made: Certificates) -> None:
    for given in (EngineTls(), EngineTls(ca=made.path("ca.pem"), server_name=NAME)):
        context = EngineTrust(given).context
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_complaints_are_told_again_when_something_changed(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_tls, "COMPLAINTS", 2)
    caplog.set_level(logging.INFO)
    complaints, one, other = Complaints(), ssl.SSLError(1, "one"), ssl.SSLError(1, "other")
    for error in (one, one, other, other, one):
        complaints.failed("https://a", error)
    assert [line.rpartition(" ")[2] for line in caplog.messages] == ["one", "other", "one"]
    caplog.clear()
    complaints.succeeded("https://b")
    complaints.succeeded("https://a")
    complaints.failed("https://a", one)
    assert len(caplog.messages) == 2
    caplog.clear()
    complaints.failed("https://b", one)
    complaints.failed("https://c", one)
    complaints.failed("https://a", one)
    assert [line.split()[5] for line in caplog.messages] == ["https://b:", "https://c:", "https://a:"]


def test_what_has_no_reason_is_told_as_it_is() -> None:
    assert why(ssl.SSLError(1, "odd")) == f"TLS failed: {ssl.SSLError(1, 'odd')}"
