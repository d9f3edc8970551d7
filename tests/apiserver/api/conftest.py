"""What tests of refusals are given."""

from __future__ import annotations

import pytest

from apiserver.server import ApiServer, Namespace


@pytest.fixture(scope="module")
def default(api_server: ApiServer) -> Namespace:
    """The namespace that is always there: nothing that is refused is kept."""
    return Namespace(server=api_server, name="default")
