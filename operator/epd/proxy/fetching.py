"""A whole answer of an engine, from the call to the last byte. Never tries again and judges nothing."""

from __future__ import annotations

from dataclasses import dataclass

from epd.proxy.transport import Call, Transport


@dataclass(slots=True, init=False)
class Fetched:
    """An answer that is complete. Header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


async def fetch(transport: Transport, call: Call) -> Fetched:
    """Send `call` and read all of its answer. Raises TransportError; a cancelled call breaks the connection."""
    answer = await transport.send(call)
    try:
        return Fetched(answer.status, answer.headers, await answer.read())
    finally:
        answer.close()
