"""Invariant 1: no name outside the root is ever unlinked, renamed or changed, whatever is swapped during a pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PASSES = 15
"""Of each test, a second; `python -m fuzz.hostile --passes 1000` makes more. The first few catch a mutation."""
SAFE = ("safe", "without-openat2")
"""Both ways of `KernelFiles.open_directory`."""


@cache
def unshare() -> tuple[str, ...]:
    """How to get a mount namespace, which ends with its process and takes all mounts along; empty if not at all."""
    for user in ((), ("--user", "--map-root-user")):
        command = ("unshare", *user, "--mount", "--propagation", "private")
        try:
            if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
                return command
        except FileNotFoundError:
            break
    return ()


def attacked(directory: Path, files: str, mode: str, *, passes: int, seed: int = 1, mounts: bool = True) -> Any:
    command = [*(unshare() if mounts else ()), sys.executable, "-m", "fuzz.hostile", str(directory)]
    options = ["--files", files, "--mode", mode, "--passes", str(passes), "--seed", str(seed)]
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'operator'}{os.pathsep}{ROOT / 'tests'}"}
    done = subprocess.run(
        [*command, *options, *(["--mounts"] if mounts else [])], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def mounts() -> None:
    if not unshare():
        pytest.skip("needs a mount namespace: root, or user namespaces")


@pytest.mark.parametrize("mode", ["between", "at-once"])
@pytest.mark.parametrize("files", SAFE)
def test_01_nothing_outside_changes_under_swapped_links_renames_and_hard_links(
    tmp_path: Path, files: str, mode: str
) -> None:
    found = attacked(tmp_path, files, mode, passes=PASSES, mounts=False)

    assert found["changed"] == {}
    assert {"link", "move_out", "move_in", "replace"} <= found["done"].keys()
    assert {"removed dead-version", "removed ttl", "removed pin", "removed temporary"} <= found["met"].keys()
    assert found["met"]["spared foreign"] > 0


@pytest.mark.usefixtures("mounts")
@pytest.mark.parametrize("mode", ["between", "at-once"])
@pytest.mark.parametrize("files", SAFE)
def test_01_nothing_outside_changes_under_bind_mounts_too(tmp_path: Path, files: str, mode: str) -> None:
    found = attacked(tmp_path, files, mode, passes=PASSES, seed=1001)

    assert found["changed"] == {}
    assert {"link", "move_out", "move_in", "replace", "bind", "bind_file", "unbind"} <= found["done"].keys()
    assert found["met"]["spared foreign"] > 0


@pytest.mark.parametrize("mode", ["between", "at-once"])
def test_a_collector_that_follows_links_is_caught(tmp_path: Path, mode: str) -> None:
    found = attacked(tmp_path, "following", mode, passes=PASSES, mounts=False)

    assert any(name.startswith(str(tmp_path / "outside")) for name in found["changed"])


@pytest.mark.usefixtures("mounts")
@pytest.mark.parametrize("mode", ["between", "at-once"])
def test_a_collector_that_crosses_mounts_is_caught(tmp_path: Path, mode: str) -> None:
    found = attacked(tmp_path, "crossing", mode, passes=PASSES)

    assert any(name.startswith(str(tmp_path / "outside")) for name in found["changed"])
