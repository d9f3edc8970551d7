"""What tests of the collector are given, unless they say otherwise: a root on which one version is live."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.collector.tree import LIVE, Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = Tree(tmp_path)
    tree.record(LIVE)
    return tree
