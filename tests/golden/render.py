"""What `kubectl epd render` prints for an example, with an image whose name stays."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path
from typing import Final

from epd.cli.main import main

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
GOLDEN: Final = Path(__file__).parent


def examples() -> list[Path]:
    """All examples, in order."""
    return sorted(EXAMPLES.glob("*.yaml"))


def rendered(example: Path) -> str:
    """The manifests of one example, as YAML."""
    output = io.StringIO()
    with redirect_stdout(output):
        status = main(["render", "-f", str(example), "--operator-image", "epd-operator:golden"])
    if status:
        raise AssertionError(f"{example.name} can't be rendered")
    return output.getvalue()
