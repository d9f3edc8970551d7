"""A tiny API server over loopback: lists in pages, and can be made to fail in every way that a test needs."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

JSONObject = dict[str, Any]


@dataclass(frozen=True)
class Request:
    """One GET as it came."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]


@dataclass
class Answer:
    """What one GET is answered. `announced` is the Content-Length, None for that of the body."""

    status: int = 200
    body: bytes = b""
    announced: int | None = None
    chunked: bool = False


@dataclass
class FakeApi:
    """Collections and objects by path, and what a test wants to go wrong.

    Attributes:
        collections: Path to items.
        objects: Path to object.
        fault: Asked before each request; an Answer is given instead of the right one.
        seen: Every request.
        version: resourceVersion of lists.
    """

    collections: dict[str, list[JSONObject]] = field(default_factory=dict)
    objects: dict[str, JSONObject] = field(default_factory=dict)
    fault: Callable[[Request], Answer | None] = lambda _: None
    seen: list[Request] = field(default_factory=list)
    version: str = "7"
    url: str = ""

    def answer(self, request: Request) -> Answer:
        """Answer one request as a kube-apiserver does."""
        self.seen.append(request)
        if (wrong := self.fault(request)) is not None:
            return wrong
        if request.path in self.objects:
            return Answer(body=json.dumps(self.objects[request.path]).encode())
        if request.path not in self.collections:
            return refusal(404, "the server could not find the requested resource")
        return Answer(body=json.dumps(self.page(request)).encode())

    def page(self, request: Request) -> JSONObject:
        """One page; the continue token is the index of the next item."""
        items = self.collections[request.path]
        start = int(request.query.get("continue", 0))
        limit = int(request.query.get("limit", 0)) or len(items)
        metadata = {"resourceVersion": self.version}
        if start + limit < len(items):
            metadata["continue"] = str(start + limit)
        return {"kind": "ThingList", "metadata": metadata, "items": items[start : start + limit]}


def refusal(status: int, message: str) -> Answer:
    """A Status object as the API server answers errors."""
    return Answer(status=status, body=json.dumps({"kind": "Status", "code": status, "message": message}).encode())


@contextlib.contextmanager
def serving(api: FakeApi) -> Iterator[FakeApi]:
    """Serve on a free port of loopback; `api.url` is set."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            answer = api.answer(Request(parts.path, query, {k.lower(): v for k, v in self.headers.items()}))
            self.send_response(answer.status)
            if answer.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(answer.body), answer.body))  # never the last chunk
                self.close_connection = True
                return
            length = len(answer.body) if answer.announced is None else answer.announced
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = length != len(answer.body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    api.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
