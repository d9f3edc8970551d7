from __future__ import annotations

import os

import pytest

from chart.helm import Helm, find


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    binary = find()
    if binary is None:
        reason = "no helm: set HELM, put helm on PATH, or install Go so that it can be built"
        if os.environ.get("EPD_NO_SKIP"):
            pytest.fail(reason)
        pytest.skip(reason)
    return Helm(binary=binary, home=tmp_path_factory.mktemp("helm"))
