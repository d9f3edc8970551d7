"""The collector's port: `/status` for the operator, `/metrics`, `/healthz` and `/readyz`. Changes nothing.

Handlers read what other threads last published, so that they answer while a mount hangs.
"""

from __future__ import annotations

import http
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

MOST_REQUESTS: Final = 16
"""At a time: operator, Prometheus and kubelet ask one each; more are closed, so that threads stay few."""
PATIENCE_SECONDS: Final = 10.0
"""For one read or write of a client; probes and scrapes take milliseconds."""
_BACKLOG: Final = 32

Page = Callable[[], tuple[int, str, bytes]]
"""Returns status, content type and body."""


class Server:
    """Serves pages by path, each in a thread of its own, until closed."""

    def __init__(self, pages: Mapping[str, Page], *, host: str, port: int) -> None:
        class Handler(_Handler):
            routes = pages

        self._server = _ThreadedServer((host, port), Handler)
        self.port: Final[int] = self._server.server_address[1]
        """The one that was bound; another than asked for where that is 0."""
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop accepting. Requests under way are not waited for."""
        self._server.shutdown()
        self._server.server_close()


def text(status: int, words: str) -> tuple[int, str, bytes]:
    """Return a page of one line."""
    return status, "text/plain; charset=utf-8", f"{words}\n".encode()


class _ThreadedServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = _BACKLOG

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._room = threading.BoundedSemaphore(MOST_REQUESTS)
        # of both families where there are two: a pod's address may be of either
        everywhere = not address[0] and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if everywhere or ":" in address[0] else socket.AF_INET
        self._dualstack = everywhere
        super().__init__(address, handler)

    def server_bind(self) -> None:
        if self._dualstack:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left in between is no news."""


class _Handler(BaseHTTPRequestHandler):
    routes: Mapping[str, Page] = {}
    timeout = PATIENCE_SECONDS
    server_version = "epd-collector"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one page; the connection ends with it."""
        page = self.routes.get(self.path.partition("?")[0])
        status, kind, body = page() if page else text(http.HTTPStatus.NOT_FOUND, f"try {', '.join(self.routes)}")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Probes ask every few seconds."""
