"""The name under which the transport was known."""

from epd.proxy.pool import HttpTransport

__all__ = ["HttpTransport"]
