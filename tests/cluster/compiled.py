"""Builds the package as the image has it, its hot modules compiled, for tests and benchmarks on this machine.

    python -m cluster.compiled                        says the folder, built if need be
    python -m cluster.compiled tests/unit/proxy ...   runs pytest on it, with these arguments; by default without tests
                                                      that replace what is built in (-m "not interpreted")

It never builds in the checkout: the build hook moves pyproject.toml away for a while.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from . import paths
from .steps import HarnessError, cached, run

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "operator")
PROBE = "epd/proxy/exchange"
"""A module that has to be compiled, or tests would say nothing about compiled ones."""


def package(repo: Path = paths.REPO) -> Path:
    """Folder to put on the path in place of `operator/`. Raises HarnessError."""
    versions = (sys.version, platform.machine(), (paths.REPO / "requirements" / "dev.txt").read_text())
    key = paths.key([repo / name for name in SOURCES], *versions)

    def make(to: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "source")
            source.mkdir()
            for name in SOURCES:
                copy = shutil.copytree if (repo / name).is_dir() else shutil.copyfile
                copy(repo / name, source / name)
            build = ["uv", "build", "--wheel", "--no-build-isolation", "--python", sys.executable]
            run([*build, "--out-dir", folder, source], env={"HATCH_BUILD_HOOK_ENABLE_MYPYC": "1"})
            [wheel] = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(to)
        if not list(to.glob(f"{PROBE}.*.so")):
            raise HarnessError(f"{PROBE}.py was not compiled: see tool.hatch.build in pyproject.toml")

    path = paths.cache() / f"compiled-{key}"
    new = not path.exists()
    cached(path, "the package with its hot modules compiled", make, may_take="3 min")
    if new:  # 10 MB for each state of the code: keep the last three
        ages = sorted(
            (old for old in path.parent.glob("compiled-*") if old.is_dir()), key=lambda old: old.stat().st_mtime
        )
        for old in ages[:-3]:
            shutil.rmtree(old, ignore_errors=True)
    return path


def main(arguments: list[str]) -> int:
    """Say where the package is, or run pytest on it; the exit status."""
    folder = package()
    if not arguments:
        print(folder)
        return 0
    tests = paths.REPO / "tests"
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{tests}"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-o",
        f"pythonpath={folder} {tests}",
        "-m",
        "not interpreted",
        *arguments,
    ]
    return subprocess.run(command, cwd=paths.REPO, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
