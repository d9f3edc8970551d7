from __future__ import annotations

import json

import pytest

from epd.proxy.dialects import RESPONSE_ID, parse_responses
from epd.proxy.errors import InvalidRequestError
from epd.proxy.media import MediaPolicy
from epd.proxy.stored import made_by, new_id, stored_as
from unit.proxy.engines import member

ENGINES = [member("d-zero"), member("d-one")]


def test_an_id_leads_to_the_engine_that_made_the_response() -> None:
    for engine in ENGINES:
        first, second = new_id(engine.name), new_id(engine.name)
        assert first != second
        assert made_by(first, ENGINES) is made_by(second, ENGINES) is engine
        # as vLLM and the routes take it, and without the engine's name
        assert (first[:5], bool(RESPONSE_ID.fullmatch(first)), engine.name in first) == ("resp_", True, False)


def test_an_id_is_one_tenants_alone() -> None:
    made = {tenant: new_id("d-one", tenant) for tenant in ("", "acme", "beta", "acme2")}
    for tenant, response_id in made.items():
        assert made_by(response_id, ENGINES, tenant) is ENGINES[1]
        # nor does it lead to the engine where its random end is another's
        for other in made.keys() - {tenant}:
            with pytest.raises(InvalidRequestError) as refusal:
                made_by(response_id, ENGINES, other)
            assert refusal.value.error_code == "response_not_found"
            assert ("another tenant's" in refusal.value.message) == bool(other)


@pytest.mark.parametrize("response_id", [new_id("d-two"), "resp_", "resp_" + "0" * 48, "x"])
def test_an_id_of_no_engine_is_refused_with_the_reason(response_id: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"the engine that made {response_id} is gone") as refusal:
        made_by(response_id, ENGINES)
    assert (refusal.value.status, refusal.value.error_code) == (400, "response_not_found")


def test_the_engine_is_told_which_id_it_is_and_the_client_has_no_say() -> None:
    body = json.dumps({"input": "x", "request_id": "resp_theirs", "store": True}).encode()
    request = stored_as(parse_responses(body, policy=MediaPolicy()), "resp_1")
    assert isinstance(request.body, bytes)
    assert json.loads(request.body) == {"input": "x", "store": True, "request_id": "resp_1"}
