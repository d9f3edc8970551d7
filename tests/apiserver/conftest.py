from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from apiserver.server import CRD_FILE, ApiServer, Namespace, running
from cluster import HarnessError

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A kube-apiserver of our own, with the CustomResourceDefinition of the repository."""
    try:
        with running(tmp_path_factory.mktemp("api-server")) as server:
            server.apply_crd(CRD_FILE.read_text())
            yield server
    except HarnessError as error:
        reason = f"no kube-apiserver: {error}"
        if os.environ.get("EPD_NO_SKIP"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture
def namespace(api_server: ApiServer) -> Namespace:
    """A namespace that no other test uses. Nothing deletes it: without controllers it would stay terminating."""
    name = f"test-{next(_numbers)}"
    api_server.kubectl("create", "namespace", name)
    return Namespace(server=api_server, name=name)
