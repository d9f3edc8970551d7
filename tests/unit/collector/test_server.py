from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from epd.collector.server import MOST_REQUESTS, Page, Server, text


@pytest.fixture
def blocked() -> Iterator[threading.Event]:
    """While it is not set, `/slow` hangs."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def entered() -> threading.Semaphore:
    """Released by each request for `/slow`."""
    return threading.Semaphore(0)


@pytest.fixture
def server(blocked: threading.Event, entered: threading.Semaphore) -> Iterator[Server]:

    def slow() -> tuple[int, str, bytes]:
        entered.release()
        blocked.wait()
        return text(200, "slow")

    def broken() -> tuple[int, str, bytes]:
        raise ValueError("a defect")

    pages: dict[str, Page] = {"/ok": lambda: text(200, "ok"), "/no": lambda: text(503, "why"), "/slow": slow}
    running = Server(pages | {"/broken": broken}, host="127.0.0.1", port=0)
    yield running
    blocked.set()
    running.close()


def get(server: Server, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_pages_by_path(server: Server) -> None:
    assert get(server, "/ok") == (200, "ok\n")
    assert get(server, "/ok?x=1") == (200, "ok\n")
    assert get(server, "/no") == (503, "why\n")
    assert get(server, "/else") == (404, "try /ok, /no, /slow, /broken\n")


def test_nothing_but_get(server: Server) -> None:
    assert get(server, "/ok", "POST")[0] == 501
    assert get(server, "/ok", "DELETE")[0] == 501


def test_one_slow_page_holds_up_no_other(
    server: Server, blocked: threading.Event, entered: threading.Semaphore
) -> None:
    waiting = threading.Thread(target=get, args=(server, "/slow"))
    waiting.start()
    entered.acquire()
    assert get(server, "/ok") == (200, "ok\n")
    blocked.set()
    waiting.join()


def test_a_page_that_fails_leaves_the_server_up(server: Server) -> None:
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        get(server, "/broken")
    assert get(server, "/ok")[0] == 200


def test_more_requests_than_there_are_threads_are_closed(
    server: Server, blocked: threading.Event, entered: threading.Semaphore
) -> None:
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(MOST_REQUESTS)]
    for client in clients:
        client.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
        entered.acquire()
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        get(server, "/ok")
    blocked.set()
    for client in clients:
        with client, client.makefile("rb") as answer:
            assert answer.read().endswith(b"slow\n")
    assert get(server, "/ok")[0] == 200


def test_every_address_of_both_families() -> None:
    server = Server({"/ok": lambda: text(200, "ok")}, host="", port=0)
    try:
        assert get(server, "/ok") == (200, "ok\n")
        if socket.has_dualstack_ipv6():
            with socket.create_connection(("::1", server.port)) as client:
                client.sendall(b"GET /ok HTTP/1.0\r\n\r\n")
                assert client.makefile("rb").read().endswith(b"ok\n")
    finally:
        server.close()
