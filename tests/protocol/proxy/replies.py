"""A client's strict reading of all that came back over a connection."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Reply:
    status: int
    close: bool
    whole: bool


def replies_of(data: bytes, methods: list[bytes]) -> list[Reply]:
    """All replies in `data`, of which the last may not be whole. Fails where there is anything else."""
    found: list[Reply] = []
    while data:
        head, mark, rest = data.partition(b"\r\n\r\n")
        if not mark:
            assert head.startswith(b"HTTP/1.1 "[: len(head)])
            return [*found, Reply(0, close=False, whole=False)]
        line, *lines = head.split(b"\r\n")
        version, status, _ = line.split(b" ", 2)
        assert version == b"HTTP/1.1"
        if status == b"100":
            data = rest
            continue
        fields = dict(each.lower().split(b": ", 1) for each in lines)
        reply = Reply(int(status), close=fields.get(b"connection") == b"close", whole=True)
        bodiless = len(found) < len(methods) and methods[len(found)] == b"HEAD"
        if not bodiless and b"content-length" in fields:
            length = int(fields[b"content-length"])
            reply.whole, rest = len(rest) >= length, rest[length:]
        elif not bodiless:
            assert fields[b"transfer-encoding"] == b"chunked"
            reply.whole, rest = chunks(rest)
        found.append(reply)
        data = rest
    return found


def chunks(data: bytes) -> tuple[bool, bytes]:
    """Whether a chunked body is whole, and what is behind it."""
    while True:
        line, mark, rest = data.partition(b"\r\n")
        if not mark:
            return False, b""
        size = int(line, 16)
        if len(rest) < size + 2:
            return False, b""
        assert rest[size : size + 2] == b"\r\n"
        data = rest[size + 2 :]
        if not size:
            return True, data
