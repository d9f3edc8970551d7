"""What `kubectl epd render` prints for an example, with an image and a connector whose names stay."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Final
from unittest import mock

from epd.cli.main import main
from epd.manifests import Context

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
GOLDEN: Final = Path(__file__).parent

_SOURCES: Final = {"managed.py": "# the connector's sources have tests of their own"}


def examples() -> list[Path]:
    """All examples, in order."""
    return sorted(EXAMPLES.glob("*.yaml"))


def _context(**given: object) -> Context:
    return Context(connector_sources=_SOURCES, **given)


def rendered(example: Path) -> str:
    """The manifests of one example, as YAML."""
    output = io.StringIO()
    with redirect_stdout(output), mock.patch("epd.cli.main.Context", _context):
        status = main(["render", "-f", str(example), "--operator-image", "epd-operator:golden"])
    if status:
        raise AssertionError(f"{example.name} can't be rendered")
    return output.getvalue()
