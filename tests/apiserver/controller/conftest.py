from __future__ import annotations

from collections.abc import Iterator

import pytest

from apiserver.controller.operator import Operator, running
from apiserver.server import ApiServer


@pytest.fixture(scope="module")
def operator(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """One operator for the tests of a module; each test has a namespace of its own."""
    with running(api_server.kubeconfig, tmp_path_factory.mktemp("operator")) as operator:
        yield operator
