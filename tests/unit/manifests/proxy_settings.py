"""What the proxy makes of its flags."""

from __future__ import annotations

from typing import Any

from epd.manifests.proxy_flags import proxy_flags
from epd.proxy.main import build_parser, read_settings
from epd.proxy.settings import Settings
from unit.topology.objects import epd


def settings(changes: dict[str, Any]) -> Settings:
    """What the proxy makes of its flags."""
    parser = build_parser()
    return read_settings(parser, parser.parse_args(proxy_flags(epd(changes))))
