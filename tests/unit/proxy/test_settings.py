from __future__ import annotations

import pytest

from epd.api import proxy, types
from epd.api.names import Role
from epd.proxy import identifiers
from epd.proxy.isolation import TenantIsolation
from epd.proxy.pods import Member
from epd.proxy.settings import (
    EncoderFailurePolicy,
    parse_bytes,
    parse_domains,
    parse_origins,
    parse_push_addresses,
    parse_roles,
    parse_servers,
)


def test_enumerations_are_those_of_the_api() -> None:
    assert [str(value) for value in EncoderFailurePolicy] == [str(v) for v in types.EncoderFailurePolicy]
    assert [str(value) for value in TenantIsolation] == [str(v) for v in proxy.TenantIsolation]
    assert [str(value) for value in identifiers.HashAlgorithm] == [str(v) for v in types.HashAlgorithm]


def test_values() -> None:
    assert [parse_bytes(text) for text in ("1000", "64Mi", "1k")] == [1000, 64 << 20, 1000]
    assert parse_domains(" A.com., b.com ,") == frozenset({"a.com", "b.com"})
    assert parse_roles("encode,prefill-decode") == {Role.ENCODE, Role.PREFILL_DECODE}
    assert parse_roles("encode,prefill,decode") == {Role.ENCODE, Role.PREFILL, Role.DECODE}
    assert parse_roles("prefill-decode") == {Role.PREFILL_DECODE}


def test_origins() -> None:
    assert parse_origins(" https://A.example , http://b:8080,*") == {"https://a.example", "http://b:8080", "*"}
    assert parse_origins("") == frozenset()
    for text in ("a.example", "https://a.example/", "https://a.example/x", "ftp://a.example", "null", "https://"):
        with pytest.raises(ValueError, match="is no origin"):
            parse_origins(text)


@pytest.mark.parametrize("text", ["", "0", "100m", "-1", "64 Mi"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match=r"is (no quantity|less than one byte)"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("encode", "must be among"),
        ("encode,prefill", "must be among"),
        ("decode", "must be among"),
        ("prefill-decode,decode", "must be among"),
        ("gpu", "roles are"),
        ("", "must be"),
    ],
)
def test_no_topologies(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_roles(text)


def test_servers() -> None:
    assert parse_servers("http://a:1/, http://b:2", role=Role.ENCODE) == tuple(
        Member(name=name, role=Role.ENCODE, pairing="static", address=f"http://{name}", ready=False)
        for name in ("a:1", "b:2")
    )
    assert parse_servers("http://user:secret@a:1", role=Role.ENCODE) == parse_servers("http://a:1", role=Role.ENCODE)
    both = parse_servers("https://a:1,unix:/run/a.sock,unix:///run/b.sock", role=Role.ENCODE)
    assert [(member.name, member.address) for member in both] == [
        ("a:1", "https://a:1"),
        ("/run/a.sock", "unix:/run/a.sock"),
        ("/run/b.sock", "unix:/run/b.sock"),
    ]
    for text in (
        "a:1",
        "ftp://a:1",
        "unix:",
        "unix:a.sock",
        "unix://a.sock",
        "http://a/v1",
        "http:///x",
        "http://a:99999",
        "http://a:x",
        "http://a:0",
    ):
        with pytest.raises(ValueError, match="is no base URL"):
            parse_servers(text, role=Role.ENCODE)


def test_addresses_to_push_to() -> None:
    assert parse_push_addresses(" tcp://10.0.0.1:14579,,tcp://[::1]:1 ") == ("tcp://10.0.0.1:14579", "tcp://[::1]:1")
    assert parse_push_addresses("") == ()
    for wrong in ("10.0.0.1:1", "http://a:1", "tcp://a", "tcp://:1", "tcp://a:1/x", "tcp://a:x", "tcp://a:99999"):
        with pytest.raises(ValueError, match="is no address such as"):
            parse_push_addresses(wrong)
