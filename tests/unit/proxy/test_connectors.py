from __future__ import annotations

import json

import pytest

from epd.proxy.connectors import SHARING, Connector, Sharing, announce, read_announcement
from unit.proxy.engines import arrival, joined


def test_the_table() -> None:
    assert dict(SHARING) == {
        Connector.EXAMPLE: Sharing(coalesced=True, hinted=False, announced=False, pushed=False),
        Connector.MANAGED: Sharing(coalesced=True, hinted=True, announced=False, pushed=False),
        Connector.HOST_MEMORY: Sharing(coalesced=False, hinted=False, announced=True, pushed=False),
        Connector.MOONCAKE: Sharing(coalesced=False, hinted=False, announced=False, pushed=True),
    }


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b'{"ec_transfer_params":{"k":{"peer_host":"10.0.0.1"}}}', {"k": {"peer_host": "10.0.0.1"}}),
        (b'{"ec_transfer_params":null}', {}),
        (b'{"ec_transfer_params":[1]}', {}),
        (b"{}", {}),
        (b"[]", {}),
        (b"no JSON", {}),
        (b"", {}),
    ],
)
def test_reading_an_announcement(answer: bytes, expected: object) -> None:
    assert read_announcement(answer) == expected


def test_an_announcement_is_in_every_body() -> None:
    request, params = arrival("AAAA", "BBBB").request, {"k": {"peer_host": "10.0.0.1"}}
    told = announce(request, params)
    first = request.items[0].key
    for body, was in ((told.body, request.body), (told.body_with({first: b"{}"}), request.body_with({first: b"{}"}))):
        assert json.loads(joined(body)) == json.loads(joined(was)) | {"ec_transfer_params": params}
    assert (told.items, told.options) == (request.items, request.options)
