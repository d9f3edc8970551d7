"""What the tests of this tier share: engines of one model configuration over a store in a temporary directory."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.seam import Files

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]  # `python -m engine` runs them
else:
    from engine.core import Engine


@pytest.fixture(scope="session", autouse=True)
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The connector under the package name that engines get it by."""
    where = tmp_path_factory.mktemp("delivered")
    (where / "epd_connector").symlink_to(Path(__file__).parents[2] / "operator" / "epd" / "connector")
    sys.path.insert(0, str(where))
    yield
    sys.path.remove(str(where))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The mount point of the claim."""
    path = tmp_path / "claim"
    path.mkdir()
    return path


@pytest.fixture
def start(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Starts engines; all of them end with the test."""
    started: list[Any] = []
    monkeypatch.setenv("EPD_POD_UID", f"pod-{os.getpid()}")

    def one(role: str, **options: Any) -> Any:
        engine = Engine(role, root, **options)
        started.append(engine)
        return engine

    yield one
    for engine in started:
        engine.close()
    for engine in started:
        assert (engine.script.wrong, engine.raised) == (engine.may_be_wrong, engine.may_raise)


@pytest.fixture
def files(root: Path, delivered: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """Every connector's calls to the file system, in the test's hands."""
    from epd_connector.managed import ManagedECConnector

    seam = Files(root)
    monkeypatch.setattr(ManagedECConnector, "files", seam)
    yield seam
    seam.hang = False
    seam.open_again.set()
