"""A client that sends bytes as they are given."""

from __future__ import annotations

import asyncio
import json

from protocol.proxy.proxies import Proxy
from protocol.proxy.stubs import CHAT

HELLO = json.dumps({"messages": [{"role": "user", "content": "hello"}]}).encode()


def address(p: Proxy) -> tuple[str, int]:
    base = p.http._base_url
    assert base is not None
    assert base.host is not None
    assert base.port is not None
    return base.host, base.port


async def raw(p: Proxy, *sent: bytes) -> tuple[bytes, asyncio.StreamWriter, asyncio.StreamReader]:
    """Send bytes; the first head that comes back, and the connection."""
    reader, writer = await asyncio.open_connection(*address(p))
    writer.write(b"".join(sent))
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10), writer, reader


def post(*headers: bytes, body: bytes = HELLO) -> bytes:
    lines = [f"POST {CHAT} HTTP/1.1".encode(), b"host: p", *headers, b"content-length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
