"""Where the harness keeps the running node: kubelet must be able to make its sockets there, wherever the clone lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster import paths


def test_a_short_clone_holds_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EPD_STATE", raising=False)
    monkeypatch.setattr(paths, "REPO", Path("/src/epd-operator"))
    assert paths.state() == Path("/src/epd-operator/.cache")


def test_a_clone_with_a_long_path_has_its_node_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EPD_STATE", raising=False)
    found = []
    for clone in ("a" * 90, "b" * 90):
        monkeypatch.setattr(paths, "REPO", Path("/") / clone)
        found.append(paths.state())
    assert found[0] != found[1]
    assert [len(str(state / paths.KUBELET_SOCKET)) <= paths.SOCKET_PATH_LIMIT for state in found] == [True, True]


def test_the_variable_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EPD_STATE", str(tmp_path))
    assert paths.state() == tmp_path.resolve()
