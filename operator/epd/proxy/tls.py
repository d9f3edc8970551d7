"""The certificate of the data port, loaded again when its files change.

Connections that exist keep what they were made with; new ones get the new certificate.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

RELOAD_SECONDS: Final = 10.0
"""How often the files are looked at. The kubelet itself takes up to a minute to bring a changed Secret into a pod."""


class Certificate:
    """A certificate chain and its key, in PEM files. Raises OSError or ssl.SSLError where they can't be used."""

    def __init__(self, *, chain: Path, key: Path) -> None:
        self._chain = chain
        self._key = key
        self._seen = state_of((chain, key))
        self.context = _context()
        self.context.load_cert_chain(chain, key)

    def refresh(self) -> bool:
        """Load the files again if they changed; says whether it did. Files that don't fit together are left alone."""
        try:
            state = state_of((self._chain, self._key))
            if state == self._seen:
                return False
            # a pair that is half written must not replace half of the one in use
            _context().load_cert_chain(self._chain, self._key)
            self.context.load_cert_chain(self._chain, self._key)
        except (OSError, ssl.SSLError) as error:
            log.warning("the certificate in %s can't be loaded again yet: %s", self._chain, error)
            return False
        self._seen = state
        log.info("loaded the certificate in %s again", self._chain)
        return True

    async def follow(self) -> None:
        """Refresh for ever."""
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            self.refresh()


def state_of(files: Iterable[Path]) -> tuple[int, ...]:
    """What changes when one of the files does. Raises OSError."""
    # through links: the kubelet switches one that all files of a Secret are behind
    return tuple(
        number for path in files for stat in (path.stat(),) for number in (stat.st_mtime_ns, stat.st_ino, stat.st_size)
    )


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
