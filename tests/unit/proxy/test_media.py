from __future__ import annotations

from typing import Any

import pytest

from epd.proxy.errors import InvalidRequestError
from epd.proxy.media import MediaItem, MediaPolicy, parse_media

LISTED = MediaPolicy(allowed_domains=frozenset({"img.example.com", "10.0.0.7"}))
ANY = MediaPolicy(allowed_domains=frozenset({"*"}))
DATA_ONLY = MediaPolicy()


def parse(part: dict[str, Any], policy: MediaPolicy = DATA_ONLY) -> MediaItem:
    return parse_media(part, path="messages[0].content[0]", policy=policy)


def url_part(url: str, part_type: str = "image_url") -> dict[str, Any]:
    return {"type": part_type, part_type: {"url": url}}


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (url_part("data:image/png;base64,AAAA"), "image"),
        (url_part("DATA:image/png;base64,AAAA"), "image"),
        (url_part("data:video/jpeg;base64,AAAA,BBBB", "video_url"), "video"),
        (url_part("data:audio/wav;base64,AAAA", "audio_url"), "audio"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, "audio"),
    ],
)
def test_inline_items_have_an_identifier_and_only_known_keys(part: dict[str, Any], kind: str) -> None:
    item = parse({**part, "uuid": "theirs", "cache_control": {}})
    assert (item.kind, item.identifier) == (kind, item.key)
    assert item.part() == {**part, "uuid": item.identifier}


def test_detail_is_kept_and_does_not_change_the_identity() -> None:
    part = url_part("data:image/png;base64,AAAA")
    detailed = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low", "x": 1}}
    assert parse(detailed).identifier == parse(part).identifier
    assert parse(detailed).part()["image_url"] == {"url": "data:image/png;base64,AAAA", "detail": "low"}


def test_url_items_have_none() -> None:
    item = parse(url_part("https://img.example.com/a.png"), LISTED)
    assert item.identifier is None
    assert item.part() == url_part("https://img.example.com/a.png")


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"type": "image_url", "image_url": None, "uuid": "x"}, "image_url"),
        ({"type": "image_url"}, "image_url"),
        ({"type": "image_url", "image_url": "data:image/png;base64,AAAA"}, "image_url"),
        ({"type": "image_url", "image_url": {}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": None}}, "image_url.url"),
        (url_part(""), "image_url.url"),
        (url_part("data:image/png;base64,"), "image_url.url"),
        (url_part("data:image/png;base64, "), "image_url.url"),
        (url_part("data:image/png,AAAA"), "image_url.url"),
        (url_part("data:;base64,AAAA"), "image_url.url"),
        (url_part("data:image/png;base64"), "image_url.url"),
        ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, "input_audio.data"),
        ({"type": "input_audio", "input_audio": {"data": "AAAA"}}, "input_audio.format"),
    ],
)
def test_malformed_items_are_refused_by_their_path(part: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        parse(part, ANY)
    assert refusal.value.param == f"messages[0].content[0].{param}"


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "ftp://a.example.com/x",
        "/etc/passwd",
        " file:///x",
        "blob:x",
        "s3://b/k",
    ],
)
def test_other_schemes_are_always_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        parse(url_part(url), ANY)
    assert refusal.value.error_code == "media_scheme_not_allowed"


@pytest.mark.parametrize(
    ("url", "policy"),
    [
        ("https://img.example.com/a", LISTED),
        ("http://IMG.EXAMPLE.COM.:8080/a?b#c", LISTED),
        ("http://10.0.0.7/a", LISTED),
        ("https://user:password@img.example.com:8443/a", LISTED),
        ("https://xn--bcher-kva.example/a", ANY),
        ("https://a_b.example.com/\u00fc.png", ANY),
        ("https://img.example.com/a", ANY),
        ("https://8.8.8.8/a", ANY),
        ("https://[2606:4700::1111]/a", ANY),
        ("https://[::ffff:8.8.8.8]/a", ANY),
    ],
)
def test_allowed_hosts(url: str, policy: MediaPolicy) -> None:
    assert parse(url_part(url), policy).identifier is None


NOT_LISTED = [
    "https://example.com/a",
    "https://img.example.com@evil.com/a",
    "https://evil.com?@img.example.com/a",
    "https://evil.com#@img.example.com/a",
    "https://img.example.com.evil.com/a",
    "https://evil.com/@img.example.com",
]
NOT_PUBLIC = [
    "http://localhost/a",
    "http://LOCALHOST:8000/a",
    "http://foo.localhost/a",
    "http://127.0.0.1/a",
    "http://127.1/a",
    "http://2130706433/a",
    "http://0x7f000001/a",
    "http://0177.0.0.1/a",
    "http://0.0.0.0/a",
    "http://10.1.2.3/a",
    "http://172.16.0.1/a",
    "http://192.168.1.1/a",
    "http://169.254.169.254/latest/meta-data",
    "http://224.0.0.1/a",
    "http://[::1]/a",
    "http://[::]/a",
    "http://[fe80::1]/a",
    "http://[fd00::1]/a",
    "http://[::ffff:127.0.0.1]/a",
    "http://[::ffff:10.0.0.1]/a",
    "http://kubernetes/a",
    "http://db.default.svc/a",
    "http://db.default.svc.cluster.local/a",
    "http://metadata.google.internal/a",
    "http://localhost.localdomain/a",
    "http://10-0-0-1.default.pod/a",
    "http://[64:ff9b::a00:1]/a",
    "http://[2002:a00:1::]/a",
    "http://[::a00:1]/a",
    "http://[fec0::1]/a",
    "http://[ff02::1]/a",
    "http://user:password@10.1.2.3/a",
    "http://db.default.svc./a",
]


BELOW = MediaPolicy(allowed_domains=frozenset({"*.example.com", "*.0.0.1"}))


@pytest.mark.parametrize("host", ["img.example.com", "A.B.example.com", "img.example.com."])
def test_names_below_a_domain(host: str) -> None:
    assert parse(url_part(f"https://{host}/a"), BELOW).identifier is None


@pytest.mark.parametrize("host", ["example.com", ".example.com", "imgexample.com", "img.example.com.evil", "127.0.0.1"])
def test_what_is_not_below_a_domain(host: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        parse(url_part(f"https://{host}/a"), BELOW)
    assert refusal.value.error_code == "media_domain_not_allowed"


@pytest.mark.parametrize(
    ("url", "policy"),
    [("https://img.example.com/a", DATA_ONLY)] + [(u, LISTED) for u in NOT_LISTED] + [(u, ANY) for u in NOT_PUBLIC],
)
def test_refused_hosts_name_the_field(url: str, policy: MediaPolicy) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        parse(url_part(url), policy)
    assert refusal.value.error_code == "media_domain_not_allowed"
    assert "spec.proxy.media.allowedDomains" in refusal.value.message


@pytest.mark.parametrize(
    "url",
    [
        "https://img.example.com\\@evil.com/a",
        "https://img.example.com/a b",
        "https://img.example.com/\n",
        "https://[::1/a",
        "http://%31%32%37.0.0.1/a",
        "https://img.example.com%2eevil.com/a",
        "https://img.example.com%00.evil.com/a",
        "http://[fe80::1%25eth0]/a",
        "https://\u0456mg.example.com/a",
        "https:///a",
        "https://\u24d8mg.example.com/a",
        "http://\uff11\uff12\uff17.0.0.1/a",
    ],
)
def test_urls_that_parsers_may_read_differently_are_malformed(url: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        parse(url_part(url), MediaPolicy(allowed_domains=frozenset({"*", "img.example.com"})))
    assert refusal.value.error_code == "invalid_request"
