"""Media parts of a chat message: what is accepted, where URLs may point, and what an engine gets to see of a part.

Pure. Never fetches anything: engines fetch URLs by themselves, so a name that resolves to a private address is for the
engines' network policy to stop.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from epd.proxy.documents import write
from epd.proxy.errors import InvalidRequestError
from epd.proxy.identifiers import HashAlgorithm, content_identifier, url_key
from epd.proxy.lifting import NOTHING, Payloads

KINDS: Final = MappingProxyType(
    {"image_url": "image", "video_url": "video", "audio_url": "audio", "input_audio": "audio"},
)
"""Part types that carry media (vLLM entrypoints/chat_utils.py, MM_PARSER_MAP) and their modality."""

ANY_DOMAIN: Final = "*"
_BELOW: Final = "*."
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)")
_UNSAFE_IN_URL = re.compile(r"[\x00-\x20\x7f\\]")
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
"""A name or an address, with nothing encoded in it: what decodes `%2e` sees another host than what does not."""
_CLUSTER_SUFFIXES: Final = (".localhost", ".localdomain", ".local", ".internal", ".svc", ".pod")
_GLOBAL_UNICAST: Final = ipaddress.IPv6Network("2000::/3")
"""All that IANA has given out; beyond it are the ranges that carry IPv4 addresses, such as 64:ff9b::/96 of NAT64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPolicy:
    """What media a deployment accepts and how it names items.

    `cache_salt` is what engines' prefix caches are salted with, apart from what a client's own salt adds; empty for
    nothing. With `ignores_priority` engines don't see what a client asks for as `priority`.
    """

    allowed_domains: frozenset[str] = frozenset()
    hash_algorithm: HashAlgorithm = HashAlgorithm.BLAKE3
    salt: str = ""
    cache_salt: str = ""
    ignores_priority: bool = False


@dataclass(slots=True, init=False)
class MediaItem:
    """One picture, video or sound of a request.

    `identifier` is None for URLs: their identity is their content, which only an engine sees; and in dialects where
    engines take none. `key` is equal for equal items: a hash of the content or of the URL. In `payload` marks may stand
    for what was lifted out of the body.
    """

    kind: str
    part_type: str
    payload: dict[str, str]
    identifier: str | None
    key: str
    _written: bytes = field(init=False, repr=False, compare=False)

    def __init__(self, *, kind: str, part_type: str, payload: dict[str, str], identifier: str | None, key: str) -> None:
        self.kind = kind
        self.part_type = part_type
        self.payload = payload
        self.identifier = identifier
        self.key = key
        self._written = b""

    def part(self) -> dict[str, Any]:
        """Render the part for an engine.

        Only known keys are left: beside a `uuid`, vLLM goes by the first media key of a part rather than by its `type`.
        """
        part: dict[str, Any] = {"type": self.part_type, self.part_type: self.payload}
        if self.identifier is not None:
            part["uuid"] = self.identifier
        return part

    def written(self) -> bytes:
        """The same as JSON: it stands in the body for the prefill side and in a primer."""
        if not self._written:
            self._written = write(self.part())
        return self._written


def parse_media(
    part: dict[str, Any], *, path: str, policy: MediaPolicy, payloads: Payloads = NOTHING, named: bool = True
) -> MediaItem:
    """Read one media part in chat's form; `path` is its place in the body, for messages. Raises InvalidRequestError.

    `payloads` were lifted out of the body. An item that is not `named` gets no identifier.
    """
    part_type = part["type"]
    payload = part.get(part_type)
    where = f"{path}.{part_type}"
    if payload is None:
        raise InvalidRequestError(
            f"{part_type} is missing; media that is only named by a uuid is not accepted", param=where
        )
    if not isinstance(payload, dict):
        shape = '{"data": ..., "format": ...}' if part_type == "input_audio" else '{"url": ...}'
        raise InvalidRequestError(f"{part_type} must be an object: {shape}", param=where)
    if part_type == "input_audio":
        data = text_of(payload, "data", where=where)
        media_format = payloads.expand(text_of(payload, "format", where=where))
        return inline_item(
            part_type,
            {"data": data, "format": media_format},
            media_format=media_format,
            data=data,
            policy=policy,
            payloads=payloads,
            named=named,
        )
    return url_item(
        part_type,
        text_of(payload, "url", where=where),
        detail=payload.get("detail"),
        where=f"{where}.url",
        policy=policy,
        payloads=payloads,
        named=named,
    )


def url_item(
    part_type: str,
    url: str,
    *,
    where: str,
    policy: MediaPolicy,
    detail: object = None,
    payloads: Payloads = NOTHING,
    named: bool = True,
) -> MediaItem:
    """Read the URL of an item. Raises InvalidRequestError with the path `where`."""
    head, _, data = url.partition(",")
    if payloads.stands_in(url) and (payloads.stands_in(head) or payloads.alone(data) is None):
        # what was lifted is not just the payload
        url = payloads.expand(url)
        head, _, data = url.partition(",")
    fields = {"url": url}
    if isinstance(detail, str):
        fields["detail"] = detail
    if url[:5].lower() == "data:":
        mime_type = _mime_type(head[5:])
        if mime_type is None or not data or data.isspace():
            raise InvalidRequestError("a data: URL must read data:<MIME type>;base64,<payload>", param=where)
        return inline_item(
            part_type, fields, mime_type=mime_type, data=data, policy=policy, payloads=payloads, named=named
        )
    match = _SCHEME.match(url)
    if match is None or match.group().lower() not in ("http", "https"):
        raise InvalidRequestError(
            f"{part_type} must be a data:, http: or https: URL", param=where, code="media_scheme_not_allowed"
        )
    check_host(url, part_type=part_type, where=where, allowed=policy.allowed_domains)
    kind = KINDS[part_type]
    key = url_key(kind, url, salt=policy.salt)
    return MediaItem(kind=kind, part_type=part_type, payload=fields, identifier=None, key=key)


def inline_item(
    part_type: str,
    fields: dict[str, str],
    *,
    data: str,
    mime_type: str = "",
    media_format: str = "",
    policy: MediaPolicy,
    payloads: Payloads,
    named: bool,
) -> MediaItem:
    """Name an item whose payload, `data`, is in the request."""
    kind = KINDS[part_type]
    key = content_identifier(
        policy.hash_algorithm,
        kind=kind,
        mime_type=mime_type,
        media_format=media_format,
        content=payloads.digest(policy.hash_algorithm, data),
        salt=policy.salt,
    )
    return MediaItem(kind=kind, part_type=part_type, payload=fields, identifier=key if named else None, key=key)


def text_of(payload: Mapping[str, Any], name: str, *, where: str) -> str:
    """Read a string that must be there. Raises InvalidRequestError."""
    value = payload.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidRequestError(f"{name} must be a non-empty string", param=f"{where}.{name}")
    return value


def _mime_type(head: str) -> str | None:
    """Read `<MIME type>;base64`, if that is it; vLLM takes no other encoding (multimodal/media/connector.py)."""
    mime_type, _, encoding = head.partition(";")
    return mime_type.strip().lower() if mime_type and encoding.strip().lower() == "base64" else None


def check_host(url: str, *, part_type: str, where: str, allowed: frozenset[str]) -> None:
    """Refuse a URL whose host is not in `allowed`; "*" stands for any host that looks public, "*.a.b" for all below."""
    host = _host(url, where=where)
    if host in allowed or (ANY_DOMAIN in allowed and _looks_public(host)) or _below_any(host, allowed):
        return
    if ANY_DOMAIN in allowed:
        message = (
            f'{part_type} host {host} is not public: "*" in spec.proxy.media.allowedDomains leaves out private hosts'
        )
    else:
        message = f"{part_type} host {host} is not in spec.proxy.media.allowedDomains"
    raise InvalidRequestError(message, param=where, code="media_domain_not_allowed")


def _host(url: str, *, where: str) -> str:
    try:
        host = (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        host = ""
    # what two URL parsers may read differently is not let through: the engine's is another one
    if not _HOST.fullmatch(host) or _UNSAFE_IN_URL.search(url):
        raise InvalidRequestError("the URL is malformed (host names must be plain ASCII)", param=where)
    return host


def _below_any(host: str, allowed: frozenset[str]) -> bool:
    """Whether the host is a name below one that stands for all below it, such as `*.example.com`; addresses are not."""
    if _address(host) is not None:
        return False
    return any(domain.startswith(_BELOW) and host.endswith(domain[1:]) and host != domain[1:] for domain in allowed)


def _looks_public(host: str) -> bool:
    address = _address(host)
    if isinstance(address, ipaddress.IPv6Address):
        return address.is_global and address in _GLOBAL_UNICAST and address.sixtofour is None
    if address is not None:
        return address.is_global and not address.is_multicast
    # a name without a dot is a Service of the namespace
    return "." in host and not host.endswith(_CLUSTER_SUFFIXES)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Read a literal address, in the old forms of inet_aton too (`127.1`, `0x7f000001`), as HTTP clients do."""
    if ":" in host:
        try:
            address = ipaddress.IPv6Address(host)
        except ValueError:
            return ipaddress.IPv6Address("::")  # unreadable, so not public
        return address.ipv4_mapped or address
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host))
    except OSError:
        return None
