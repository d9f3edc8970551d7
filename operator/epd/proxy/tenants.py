"""Whose an API key is: the files of a mounted Secret as a table of tenants.

Pure. A table keeps no key, only digests of keys under a secret that it makes itself: neither its memory nor the time
that a look-up takes tells anything of a key.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

KEY_LEAST: Final = 16
"""Characters. 64 random bits written in hex; what is shorter was made up by a person, and is guessed."""
KEY_MOST: Final = 4096
"""Characters. A head has room for 32 KiB; a line that is longer than any token in use is no key."""
COMMENT: Final = "#"

_DIGEST_SIZE: Final = 32
"""Bytes of BLAKE2b with a key, a MAC by itself (RFC 7693 section 2.9), which takes a quarter of the time of HMAC."""
_NAME: Final = re.compile(r"[-._A-Za-z0-9]{1,253}")
"""Keys of a Secret (Kubernetes, IsConfigMapKey). They become labels of metrics."""
_KEY: Final = re.compile(r"[!-~]+")
"""Visible ASCII: what a header can carry and no client has to quote."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A line of a tenant's file that is no key, or a file (`line` 0) that is no tenant's. Never says what it reads."""

    tenant: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.tenant!r}{f' line {self.line}' if self.line else ''}: {self.reason}"


class Table:
    """Keys in force. `tenants` are those with a key at least, `refused` is all that was left out."""

    __slots__ = ("_owners", "_secret", "refused", "tenants")

    def __init__(self, owners: Mapping[str, str], refused: tuple[Refused, ...] = ()) -> None:
        self._secret = secrets.token_bytes(_DIGEST_SIZE)
        self._owners = {digest: (digest, owner) for key, owner in owners.items() for digest in (self._digest(key),)}
        self.tenants = frozenset(owners.values())
        self.refused = refused

    def __len__(self) -> int:
        return len(self._owners)

    def owner(self, key: str) -> str | None:
        """The tenant whose key this is.

        Which digests a dict compares follows from the key in a way that only who knows the secret can foresee.
        """
        digest = self._digest(key)
        known, owner = self._owners.get(digest, (b"", ""))
        return owner if hmac.compare_digest(known, digest) else None

    def _digest(self, key: str) -> bytes:
        # what a header says was read as Latin-1, which every string of it goes back into
        return hashlib.blake2b(key.encode("latin-1"), digest_size=_DIGEST_SIZE, key=self._secret).digest()


def read_table(files: Mapping[str, bytes], *, unread: Iterable[Refused] = ()) -> Table:
    """Read the keys in `files`, by tenant. What can't be a key is left out, and the rest is as good as without it.

    `unread` are files that were left out before.

    A key a line; blank lines, blanks around a key, and lines that begin with `#` mean nothing. A key that several
    tenants have is nobody's, since no request could tell whose it is.
    """
    refused = [*unread]
    found: dict[str, dict[str, int]] = {}
    for tenant, content in sorted(files.items()):
        if _NAME.fullmatch(tenant) is None:
            refused.append(Refused(tenant, 0, "the name of a tenant has letters, digits, '-', '_' and '.' only"))
            continue
        for number, line in _lines(content):
            reason = _fault(line)
            if reason is None:
                found.setdefault(line, {}).setdefault(tenant, number)
            else:
                refused.append(Refused(tenant, number, reason))
    owners: dict[str, str] = {}
    for key, places in found.items():
        if len(places) == 1:
            owners[key] = next(iter(places))
            continue
        for tenant, number in places.items():
            others = ", ".join(repr(other) for other in places if other != tenant)
            refused.append(Refused(tenant, number, f"the key is one of {others} too, so it is nobody's"))
    return Table(owners, tuple(sorted(refused, key=lambda one: (one.tenant, one.line))))


def presented(headers: Mapping[str, str]) -> str | None:
    """The key that a request presents: the bearer token (RFC 6750), else `x-api-key`, as clients of Anthropic's have.

    The second is not looked at where there is a token, so no request is of two tenants.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip(" ")
    return headers.get("x-api-key")


def _lines(content: bytes) -> Iterator[tuple[int, str]]:
    # Latin-1 reads whatever there is; what is not ASCII is told by line then
    for number, line in enumerate(content.decode("latin-1").split("\n"), 1):
        text = line.strip(" \t\r")
        if text and not text.startswith(COMMENT):
            yield number, text


def _fault(key: str) -> str | None:
    if _KEY.fullmatch(key) is None:
        return "a key is visible ASCII without blanks"
    if len(key) < KEY_LEAST:
        return f"a key has {KEY_LEAST} characters at least"
    if len(key) > KEY_MOST:
        return f"a key has {KEY_MOST} characters at most"
    return None
