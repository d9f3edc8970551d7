"""Requests that no server should read, with the status of each refusal; and odd ones that are valid."""

from __future__ import annotations

from typing import Final

_HOST = b"Host: p\r\n"


def _get(*, line: bytes = b"GET /health HTTP/1.1", fields: bytes = _HOST) -> bytes:
    return line + b"\r\n" + fields + b"\r\n"


def _post(fields: bytes, body: bytes = b"") -> bytes:
    return b"POST /v1/chat/completions HTTP/1.1\r\n" + _HOST + fields + b"\r\n" + body


def _chunked(body: bytes) -> bytes:
    return _post(b"Transfer-Encoding: chunked\r\n", body)


MALFORMED: Final[dict[str, tuple[bytes, int]]] = {
    # lengths and codings: what two servers could read differently
    "length and chunks": (_post(b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"), 400),
    "chunks and length": (_post(b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", b"0\r\n\r\n"), 400),
    "two lengths": (_post(b"Content-Length: 4\r\nContent-Length: 5\r\n", b"{}  "), 400),
    "one length twice": (_post(b"Content-Length: 4\r\nContent-Length: 4\r\n", b"{}  "), 400),
    "list of lengths": (_post(b"Content-Length: 5, 5\r\n", b"{}   "), 400),
    "length with a plus": (_post(b"Content-Length: +5\r\n", b"{}   "), 400),
    "length below zero": (_post(b"Content-Length: -5\r\n"), 400),
    "length in hex": (_post(b"Content-Length: 0x5\r\n", b"{}   "), 400),
    "length with an underscore": (_post(b"Content-Length: 1_0\r\n", b"{}        "), 400),
    "length with a point": (_post(b"Content-Length: 5.0\r\n", b"{}   "), 400),
    "length with a space inside": (_post(b"Content-Length: 1 0\r\n", b"{}        "), 400),
    "length in quotes": (_post(b'Content-Length: "5"\r\n', b"{}   "), 400),
    "length in other digits": (_post("Content-Length: \u0665\r\n".encode(), b"{}   "), 400),
    "length in superscript": (_post(b"Content-Length: \xb2\r\n", b"{}"), 400),
    "length of nothing": (_post(b"Content-Length:\r\n"), 400),
    "length that overflows": (_post(b"Content-Length: 18446744073709551621\r\n", b"{}   "), 400),
    "length with a word": (_post(b"Content-Length: five\r\n"), 400),
    "unknown coding": (_post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"), 400),
    "identity": (_post(b"Transfer-Encoding: identity\r\n"), 400),
    "chunked before identity": (_post(b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n"), 400),
    "chunked twice in a list": (_post(b"Transfer-Encoding: chunked, chunked\r\n", b"0\r\n\r\n"), 400),
    "chunked in two fields": (
        _post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
        400,
    ),
    "identity in a second field": (
        _post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", b"0\r\n\r\n"),
        400,
    ),
    "gzip before chunked": (_post(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"), 501),
    "chunked with a parameter": (_post(b"Transfer-Encoding: chunked;q=1\r\n", b"0\r\n\r\n"), 400),
    "chunked in quotes": (_post(b'Transfer-Encoding: "chunked"\r\n', b"0\r\n\r\n"), 400),
    "chunked behind a comma": (_post(b"Transfer-Encoding: ,chunked\r\n", b"0\r\n\r\n"), 501),
    "no coding": (_post(b"Transfer-Encoding:\r\n", b"0\r\n\r\n"), 400),
    "vertical tab in a coding": (_post(b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n"), 400),
    "space before a coding's colon": (_post(b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n"), 400),
    "tab before a length's colon": (_post(b"Content-Length\t: 5\r\n", b"{}   "), 400),
    "chunks of HTTP/1.0": (
        b"POST /v1/chat/completions HTTP/1.0\r\nHost: p\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "unknown expectation": (_post(b"Expect: 200-ok\r\nContent-Length: 2\r\n"), 417),
    # chunks
    "size in no hex": (_chunked(b"g\r\n"), 400),
    "size with 0x": (_chunked(b"0x2\r\n{}\r\n0\r\n\r\n"), 400),
    "size with a plus": (_chunked(b"+2\r\n{}\r\n0\r\n\r\n"), 400),
    "size below zero": (_chunked(b"-2\r\n{}\r\n0\r\n\r\n"), 400),
    "no size": (_chunked(b"\r\n{}\r\n0\r\n\r\n"), 400),
    "space before a size": (_chunked(b" 2\r\n{}\r\n0\r\n\r\n"), 400),
    "space behind a size": (_chunked(b"2 \r\n{}\r\n0\r\n\r\n"), 400),
    "size with an underscore": (_chunked(b"1_0\r\n"), 400),
    "size that overflows": (_chunked(b"ffffffffffffffffff\r\n{}\r\n0\r\n\r\n"), 400),
    "size ends in LF": (_chunked(b"2\n{}\r\n0\r\n\r\n"), 400),
    "size ends in CR": (_chunked(b"2\r{}\r\n0\r\n\r\n"), 400),
    "chunk longer than its size": (_chunked(b"2\r\n{}}\r\n0\r\n\r\n"), 400),
    "chunk ends in LF": (_chunked(b"2\r\n{}\n0\r\n\r\n"), 400),
    "LF in an extension": (_chunked(b"2;a\nb\r\n{}\r\n0\r\n\r\n"), 400),
    "CR in an extension": (_chunked(b"2;a\rb\r\n{}\r\n0\r\n\r\n"), 400),
    "NUL in an extension": (_chunked(b"2;a=\x00\r\n{}\r\n0\r\n\r\n"), 400),
    "extension too long": (_chunked(b"2;a=" + b"x" * 300 + b"\r\n{}\r\n0\r\n\r\n"), 400),
    "extensions without end": (_chunked((b"1;" + b"x" * 200 + b"\r\n \r\n") * 100), 400),
    "trailer without a colon": (_chunked(b"2\r\n{}\r\n0\r\nabc\r\n\r\n"), 400),
    "trailer ends in LF": (_chunked(b"2\r\n{}\r\n0\r\na: b\n\r\n"), 400),
    "trailer is folded": (_chunked(b"2\r\n{}\r\n0\r\na: b\r\n c\r\n\r\n"), 400),
    "trailers too large": (_chunked(b"2\r\n{}\r\n0\r\n" + b"a: bcdef\r\n" * 500 + b"\r\n"), 400),
    # lines and characters
    "LF alone ends lines": (b"GET /health HTTP/1.1\nHost: p\n\n", 400),
    "LF alone ends a field": (_get(fields=b"Host: p\nX: y\r\n"), 400),
    "CR alone ends a field": (_get(fields=b"Host: p\rX: y\r\n"), 400),
    "CR within a value": (_get(fields=_HOST + b"X: a\rb\r\n"), 400),
    "CR twice": (_get(fields=_HOST + b"X: a\r\r\n"), 400),
    "LF CR": (b"GET /health HTTP/1.1\n\rHost: p\n\r\n\r", 400),
    "NUL in a value": (_get(fields=_HOST + b"X: a\x00b\r\n"), 400),
    "NUL in a name": (_get(fields=_HOST + b"X\x00: a\r\n"), 400),
    "NUL in the target": (_get(line=b"GET /hea\x00lth HTTP/1.1"), 400),
    "DEL in a value": (_get(fields=_HOST + b"X: a\x7f\r\n"), 400),
    "escape in a value": (_get(fields=_HOST + b"X: \x1b[2J\r\n"), 400),
    "folded field": (_get(fields=_HOST + b"X: a\r\n b\r\n"), 400),
    "folded with a tab": (_get(fields=_HOST + b"X: a\r\n\tb\r\n"), 400),
    "first field is folded": (_get(fields=b" Host: p\r\n"), 400),
    "field without a colon": (_get(fields=_HOST + b"abc\r\n"), 400),
    "field without a name": (_get(fields=_HOST + b": a\r\n"), 400),
    "space before a colon": (_get(fields=_HOST + b"X : a\r\n"), 400),
    "space in a name": (_get(fields=_HOST + b"X Y: a\r\n"), 400),
    "bracket in a name": (_get(fields=_HOST + b"X(): a\r\n"), 400),
    "letter beyond ASCII in a name": (_get(fields=_HOST + "Ü: a\r\n".encode()), 400),
    # request lines
    "space first": (b" GET /health HTTP/1.1\r\nHost: p\r\n\r\n", 400),
    "tab first": (b"\tGET /health HTTP/1.1\r\nHost: p\r\n\r\n", 400),
    "two empty lines first": (b"\r\n\r\nGET /health HTTP/1.1\r\nHost: p\r\n\r\n", 400),
    "LF first": (b"\nGET /health HTTP/1.1\r\nHost: p\r\n\r\n", 400),
    "byte order mark first": (b"\xef\xbb\xbfGET /health HTTP/1.1\r\nHost: p\r\n\r\n", 400),
    "two spaces": (_get(line=b"GET  /health HTTP/1.1"), 400),
    "tabs for spaces": (_get(line=b"GET\t/health\tHTTP/1.1"), 400),
    "space at the end": (_get(line=b"GET /health HTTP/1.1 "), 400),
    "space in the target": (_get(line=b"GET /hea lth HTTP/1.1"), 400),
    "no target": (_get(line=b"GET HTTP/1.1"), 400),
    "no version": (_get(line=b"GET /health"), 400),
    "HTTP/0.9": (b"GET /health\r\n", 400),
    "absolute form": (_get(line=b"GET http://p/health HTTP/1.1"), 400),
    "absolute form of another scheme": (_get(line=b"GET file:///etc/passwd HTTP/1.1"), 400),
    "authority form": (_get(line=b"CONNECT p:443 HTTP/1.1"), 400),
    "asterisk of GET": (_get(line=b"GET * HTTP/1.1"), 400),
    "target without a slash": (_get(line=b"GET health HTTP/1.1"), 400),
    "fragment": (_get(line=b"GET /health#x HTTP/1.1"), 400),
    "letter beyond ASCII in the target": (_get(line="GET /hëalth HTTP/1.1".encode()), 400),
    "method in lower case": (_get(line=b"get /health HTTP/1.1"), 501),
    "method that is none": (_get(line=b"BREW /health HTTP/1.1"), 501),
    "method with a bracket": (_get(line=b"G(T /health HTTP/1.1"), 400),
    "HTTP/2.0": (_get(line=b"GET /health HTTP/2.0"), 505),
    "HTTP/1.2": (_get(line=b"GET /health HTTP/1.2"), 505),
    "HTTP/0.9 in words": (_get(line=b"GET /health HTTP/0.9"), 505),
    "preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "version in lower case": (_get(line=b"GET /health http/1.1"), 400),
    "version with three digits": (_get(line=b"GET /health HTTP/1.10"), 400),
    "version without a point": (_get(line=b"GET /health HTTP/11"), 400),
    "version with a comma": (_get(line=b"GET /health HTTP/1,1"), 400),
    "another protocol": (_get(line=b"GET /health ICY/1.1"), 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    # Host
    "no Host": (_get(fields=b"X: y\r\n"), 400),
    "no field at all": (_get(fields=b""), 400),
    "two Hosts": (_get(fields=_HOST + b"Host: q\r\n"), 400),
    "one Host twice": (_get(fields=_HOST + b"host: p\r\n"), 400),
    "two Hosts of HTTP/1.0": (_get(line=b"GET /health HTTP/1.0", fields=_HOST + _HOST), 400),
    "Host with a slash": (_get(fields=b"Host: p/q\r\n"), 400),
    "Host with a space": (_get(fields=b"Host: p q\r\n"), 400),
    "Host with a user": (_get(fields=b"Host: u@p\r\n"), 400),
    # fields that may be there once
    "two keys": (_get(fields=_HOST + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"), 400),
    "two types": (_post(b"Content-Type: a/b\r\nContent-Type: a/c\r\nContent-Length: 2\r\n", b"{}"), 400),
    # sizes
    "target too long": (_get(line=b"GET /" + b"x" * 9000 + b" HTTP/1.1"), 414),
    "line without end": (b"GET /" + b"x" * 9000, 414),
    "head too large": (_get(fields=_HOST + b"X: " + b"y" * 40_000 + b"\r\n"), 431),
    "head without end": (b"GET /health HTTP/1.1\r\nX: " + b"y" * 40_000, 431),
    "too many fields": (_get(fields=_HOST + b"X: y\r\n" * 101), 431),
}
"""Name: bytes, status. Each has one fault."""

BODY: Final = b'{"messages":[]}'
_LENGTH = b"Content-Length: %d\r\n" % len(BODY)
_CHUNKS = b"5\r\n" + BODY[:5] + b"\r\nA\r\n" + BODY[5:] + b"\r\n0\r\n"

VALID: Final[dict[str, bytes]] = {
    "plain": _post(_LENGTH, BODY),
    "no space behind colons": _post(_LENGTH.replace(b" ", b""), BODY),
    "much space around a value": _post(b"X: \t y \t \r\nContent-Length: \t%d \t\r\n" % len(BODY), BODY),
    "names in any case": _post(_LENGTH.replace(b"Content-Length", b"cOnTeNt-lEnGtH"), BODY),
    "empty value": _post(b"X:\r\n" + _LENGTH, BODY),
    "letters beyond ASCII in a value": _post("X: Grüße\r\n".encode() + _LENGTH, BODY),
    "every character of a name": _post(b"!#$%&'*+-.^_`|~09azAZ: y\r\n" + _LENGTH, BODY),
    "length with zeros": _post(b"Content-Length: 000%d\r\n" % len(BODY), BODY),
    "a query": _post(_LENGTH, BODY).replace(b"completions ", b"completions?a=b&c=%20/?:@!$'()*,;~ ", 1),
    "an empty line first": b"\r\n" + _post(_LENGTH, BODY),
    "empty Host": _post(_LENGTH, BODY).replace(b"Host: p", b"Host:"),
    "Host of IPv6": _post(_LENGTH, BODY).replace(b"Host: p", b"Host: [::1]:8000"),
    "HTTP/1.0": _post(_LENGTH, BODY).replace(b"HTTP/1.1", b"HTTP/1.0"),
    "HTTP/1.0 without Host": _post(_LENGTH, BODY).replace(b"HTTP/1.1\r\nHost: p", b"HTTP/1.0"),
    "chunks": _chunked(_CHUNKS + b"\r\n"),
    "coding in any case": _post(b"TRANSFER-ENCODING: ChUnKeD\r\n", _CHUNKS + b"\r\n"),
    "sizes with zeros": _chunked(b"000F\r\n" + BODY + b"\r\n0000\r\n\r\n"),
    "sizes in either case": _chunked(b"f;a\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "extensions": _chunked(b'F ; a=b;c="d e"\r\n' + BODY + b"\r\n0;x\r\n\r\n"),
    "trailers": _chunked(_CHUNKS + b"X-Sum: abc\r\nY:\r\n\r\n"),
    "trailers that mean something elsewhere": _chunked(_CHUNKS + b"Content-Length: 5\r\nHost: q\r\n\r\n"),
    "a field twice": _post(b"X: a\r\nX: b\r\nCookie: a=b\r\nCookie: c=d\r\n" + _LENGTH, BODY),
    "upgrade that is ignored": _post(b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\n" + _LENGTH, BODY),
}
"""Each brings BODY to the chat route."""
