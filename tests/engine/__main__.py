"""Runs pytest under the engine's interpreter: `python -m engine tests/engine` and further arguments of pytest.

vLLM is not in the development environment, and pytest is not in vLLM's: pytest's packages come last on `sys.path`, so
that everything both have is vLLM's. Exit status: pytest's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
LATE = "EPD_LATE_PATH"
"""Appended to `sys.path`."""


def outside(arguments: list[str]) -> int:
    """Start this file again under the engine's interpreter."""
    from cluster import engine

    python = engine.environment() / "bin" / "python"
    environment = os.environ | {
        LATE: sysconfig.get_paths()["purelib"],
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # plugins of the development environment were made for its packages
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    environment.pop("PYTHONPATH", None)
    command = [python, str(HERE / "__main__.py"), *arguments]
    return subprocess.run(command, env=environment).returncode


def inside(arguments: list[str]) -> int:
    """Run pytest here."""
    sys.path.append(os.environ[LATE])
    sys.path[0] = str(HERE.parent)
    import pytest

    return pytest.main(["-c", str(HERE / "pytest.ini"), *arguments])


if __name__ == "__main__":
    sys.exit(inside(sys.argv[1:]) if LATE in os.environ else outside(sys.argv[1:]))
