"""TLS to engines: whom to believe, under which name, and as whom to call; loaded again when the files change.

Certificates and names are always checked. Opens no connection.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import OrderedDict
from typing import Final

from epd.proxy.settings import EngineTls
from epd.proxy.tls import RELOAD_SECONDS, state_of

log = logging.getLogger(__name__)

COMPLAINTS: Final = 1024
"""Engines whose failures are remembered; more than one proxy has, and pods that are gone are forgotten in the end."""

_UNTRUSTED: Final = frozenset({18, 19, 20, 21})
"""X509_V_ERR of a chain that leads to nobody whom the bundle names (openssl/x509_vfy.h)."""
_MISNAMED: Final = frozenset({62, 64})
"""X509_V_ERR_HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH."""
_PLAIN: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"})
"""How OpenSSL takes bytes that are none of TLS, by version."""


class EngineTrust:
    """The context of connections to engines. Raises OSError or ssl.SSLError where a file can't be used."""

    def __init__(self, given: EngineTls) -> None:
        self._given = given
        self._files = tuple(path for path in (given.ca, given.certificate, given.key) if path is not None)
        self._seen = state_of(self._files)
        self.server_name = given.server_name
        """The name that certificates have to show, if it is not the host of the engine's address."""
        self.anonymous = given.certificate is None
        """Whether engines are shown no certificate."""
        self.context = _context(given)

    def refresh(self) -> bool:
        """Load the files again if they changed; says whether it did. What can't be loaded changes nothing."""
        try:
            state = state_of(self._files)
            if state == self._seen:
                return False
            # a context of its own: from one that exists no CA can be taken away
            self.context = _context(self._given)
        except (OSError, ssl.SSLError) as error:
            log.warning("the files for TLS to engines can't be loaded again yet: %s", error)
            return False
        self._seen = state
        log.info("loaded the files for TLS to engines again")
        return True

    async def follow(self) -> None:
        """Refresh for ever."""
        while True:
            await asyncio.sleep(RELOAD_SECONDS)
            self.refresh()


class Complaints:
    """Logs why no TLS came about with an engine: once, and again when the reason changes or it was well meanwhile."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, str] = OrderedDict()

    def failed(self, address: str, error: ssl.SSLError) -> str:
        """Say why TLS with the engine at `address` failed; returns it."""
        reason = why(error)
        self._tell(address, reason)
        return reason

    def hung_up(self, address: str) -> None:
        """Say that an engine closed a new connection without a word, as asyncio's servers refuse a client."""
        self._tell(
            address, "it hung up before it answered; maybe it wants a certificate of its clients (--engine-cert)"
        )

    def succeeded(self, address: str) -> None:
        """Forget what was wrong."""
        if self._told and self._told.pop(address, None) is not None:
            log.info("TLS with the engine %s works again", address)

    def _tell(self, address: str, reason: str) -> None:
        if self._told.get(address) != reason:
            log.warning("no TLS with the engine %s: %s", address, reason)
            self._told[address] = reason
            if len(self._told) > COMPLAINTS:
                self._told.popitem(last=False)


def why(error: ssl.SSLError) -> str:
    """What is wrong, in words that name what to look at."""
    if isinstance(error, ssl.SSLCertVerificationError):
        hint = ""
        if error.verify_code in _UNTRUSTED:
            hint = " (is its CA in --engine-ca?)"
        elif error.verify_code in _MISNAMED:
            hint = " (see --engine-server-name)"
        return f"its certificate is refused: {error.verify_message.rstrip('.')}{hint}"
    # those that OpenSSL has not made have none
    reason = getattr(error, "reason", None) or str(error)
    if reason in _PLAIN:
        return f"it does not speak TLS ({reason})"
    if reason.endswith("CERTIFICATE_REQUIRED"):
        return "it wants a certificate of its clients (see --engine-cert)"
    return f"TLS failed: {reason}"


def _context(given: EngineTls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=given.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if given.certificate is not None:
        context.load_cert_chain(given.certificate, given.key)
    return context
