"""What the proxy says of pushed embeddings, read by vLLM's own ECMooncakeConnector; nothing is transferred.

Its scheduler half is made without a transfer engine: of what it does, only the matching of names is looked at.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.distributed.ec_transfer.ec_connector.mooncake.scheduler import ECMooncakeScheduler

from epd.proxy.connectors import announce
from epd.proxy.media import MediaPolicy
from epd.proxy.parsed import ParsedRequest, primer_body
from epd.proxy.pushes import push
from epd.proxy.requests import parse_chat

CONSUMER = "tcp://10.0.0.9:14579"
PAIRS = [("AAAA",), ("AAAA", "BBBB", "CCCC"), ("AAAA", "BBBB", "AAAA", "CCCC", "BBBB")]


def features(body: dict[str, Any]) -> list[Any]:
    """The features of a body, in prompt order: an item with a `uuid` has that as its key."""
    parts = [part for message in body["messages"] for part in message["content"]]
    return [SimpleNamespace(identifier=part["uuid"], modality="image", data=None) for part in parts]


def asked(body: dict[str, Any]) -> Any:
    params = body["ec_transfer_params"]
    return SimpleNamespace(request_id="r", ec_transfer_params=params, mm_features=features(body))


def producer() -> ECMooncakeScheduler:
    """The scheduler half of an encoder."""
    scheduler = object.__new__(ECMooncakeScheduler)
    scheduler._is_producer, scheduler._is_consumer = True, False
    scheduler._pushes_to_prepare, scheduler._prepared_push_transfer_ids = {}, set()
    scheduler._metadata_resolver = SimpleNamespace(fields_for=lambda modality: frozenset())
    scheduler._encoder_output_spec = lambda request, index: SimpleNamespace(nbytes=1, shape=(1, 1), dtype="torch.half")
    return scheduler


def request(pictures: tuple[str, ...]) -> ParsedRequest:
    urls = [f"data:image/png;base64,{picture}" for picture in pictures]
    content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    return parse_chat(json.dumps(body).encode(), policy=MediaPolicy())


@pytest.mark.parametrize("pictures", PAIRS)
def test_each_feature_is_found_under_the_transfer_that_was_pushed(pictures: tuple[str, ...]) -> None:
    given, encoder = request(pictures), producer()
    transfers = push(CONSUMER, given, given.items)
    primer = asked(json.loads(primer_body(given, given.items, transfers.field())))
    for index in range(len(primer.mm_features)):
        encoder._prepare_push_spec(primer, index)
    pushed = dict(encoder._pushes_to_prepare)
    assert {spec.consumer_zmq for spec in pushed.values()} == {CONSUMER}
    assert sorted(pushed) == sorted(transfers.transfers)
    _, reported = encoder.request_finished(primer)
    entries = transfers.read(json.dumps({"ec_transfer_params": reported}).encode())
    # the prefill side's request, with every picture as often as the client sent it
    told = asked(json.loads(announce(given, {"ec_items": entries}).body))
    assert len(told.mm_features) == len(pictures)
    for index, feature in enumerate(told.mm_features):
        transfer = ECMooncakeScheduler._request_transfer_id(told, index)
        assert pushed[transfer].mm_hash == feature.identifier
