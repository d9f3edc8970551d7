"""Connections to engines that turn out to be closed, as a scrape of the running proxy tells of them."""

from __future__ import annotations

import asyncio
import re

from protocol.proxy.processes import running

COUNTED = re.compile(r"epd_proxy_reconnects_total\{[^}]*\} (\S+)")
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request of a connection, and close it on the next, as a server does whose keep-alive has ended."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(OK)
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def test_calls_that_are_sent_over_another_connection_are_counted() -> None:
    async with await asyncio.start_server(answer_once, "127.0.0.1", 0) as engine:
        host, port = engine.sockets[0].getsockname()
        flags = ("--encode-servers-urls", "", "--prefill-servers-urls", "disable")
        async with running(*flags, "--decode-servers-urls", f"http://{host}:{port}") as proxy:
            await proxy.ready(200)
            for _ in range(2):
                async with proxy.http.get(f"{proxy.data}/v1/models") as answer:
                    assert (answer.status, await answer.read()) == (200, b"{}")
            async with proxy.http.get(f"{proxy.admin}/metrics") as page:
                [counted] = COUNTED.findall(await page.text())
    assert float(counted) > 0
