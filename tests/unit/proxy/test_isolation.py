from __future__ import annotations

import json
import re
from typing import Any

import pytest

from epd.proxy.dialects import (
    parse_generation,
    parse_messages,
    parse_pooling,
    parse_responses,
    parse_scoring,
    parse_text,
)
from epd.proxy.errors import InvalidRequestError
from epd.proxy.hints import hint_keys
from epd.proxy.identifiers import HashAlgorithm
from epd.proxy.isolation import GIVEN_MOST, Isolation, TenantIsolation
from epd.proxy.lifting import Lifter
from epd.proxy.media import MediaPolicy
from epd.proxy.parsed import ParsedRequest
from epd.proxy.requests import parse_chat
from epd.proxy.routes import Parse

OPEN = MediaPolicy(allowed_domains=frozenset({"a.com"}))
SALTED = Isolation(TenantIsolation.SALTED, OPEN)
A, B = SALTED.policy("acme"), SALTED.policy("beta")
DIGEST = re.compile(r"[0-9a-f]{64}")


def chat(policy: MediaPolicy, **fields: object) -> ParsedRequest:
    urls = ["data:image/png;base64,AAAA", "https://a.com/b.png"]
    content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return parse_chat(
        json.dumps({"messages": [{"role": "user", "content": content}], **fields}).encode(), policy=policy
    )


def written(request: ParsedRequest) -> dict[str, Any]:
    body = request.body
    document: dict[str, Any] = json.loads(body if isinstance(body, bytes) else b"".join(body))
    return document


def salt(policy: MediaPolicy, **fields: object) -> str:
    found = written(chat(policy, **fields))["cache_salt"]
    assert isinstance(found, str)
    return found


def test_shared_tenants_have_the_deployments_own_names() -> None:
    shared = Isolation(TenantIsolation.SHARED, OPEN)
    assert shared.policy("acme") is shared.policy("beta") is OPEN
    assert "cache_salt" not in written(chat(OPEN))
    assert written(chat(OPEN, cache_salt="mine"))["cache_salt"] == "mine"


def test_salts_are_each_tenants_own_and_the_same_in_every_replica() -> None:
    assert A == Isolation(TenantIsolation.SALTED, OPEN).policy("acme") is not SALTED.policy("acme")
    policies = [
        Isolation(TenantIsolation.SALTED, MediaPolicy(salt=deployment, hash_algorithm=algorithm)).policy(tenant)
        for deployment in ("", "2")
        for algorithm in HashAlgorithm
        for tenant in ("acme", "beta")
    ]
    salts = [salt for policy in policies for salt in (policy.salt, policy.cache_salt)]
    assert len(set(salts)) == 16
    assert all(DIGEST.fullmatch(salt) for salt in salts)
    # all else is the deployment's
    assert A.allowed_domains == OPEN.allowed_domains


def test_more_tenants_than_are_remembered_keep_their_salts() -> None:
    isolation = Isolation(TenantIsolation.SALTED, OPEN)
    policies = {f"t{n}": isolation.policy(f"t{n}") for n in range(5000)}
    assert len(isolation._policies) <= 4096
    assert isolation.policy("t0") == policies["t0"]
    assert len({policy.salt for policy in policies.values()}) == 5000


def test_neither_items_nor_primers_nor_hints_of_two_tenants_are_the_same() -> None:
    own, same, others = (chat(policy) for policy in (A, A, B))

    def names(request: ParsedRequest) -> list[object]:
        flights = [request.work_key(item, authorization="") for item in request.items]
        return [*(item.key for item in request.items), request.items[0].identifier, *flights]

    assert names(own) == names(same)
    assert set(names(own)).isdisjoint(names(others))
    assert hint_keys("p", own) == hint_keys("p", same)
    assert set(hint_keys("p", own).values()).isdisjoint(hint_keys("p", others).values())
    # what engines get: the identifier of one, and nothing for a URL
    uuids = [[part.get("uuid") for part in written(r)["messages"][0]["content"]] for r in (own, others)]
    assert uuids == [[own.items[0].identifier, None], [others.items[0].identifier, None]]


def test_a_clients_own_salt_parts_its_tenants_requests_and_is_nobody_elses() -> None:
    salts = [salt(policy, **fields) for policy in (A, B) for fields in ({}, {"cache_salt": "x"}, {"cache_salt": "y"})]
    assert len(set(salts)) == 6
    assert all(DIGEST.fullmatch(one) for one in salts)
    assert salt(A, cache_salt="x") == salts[1]
    assert (salt(A, cache_salt=None), salts[0]) == (A.cache_salt, A.cache_salt)
    # who knows another's salt can't have it
    assert salt(B, cache_salt=A.cache_salt) not in salts
    assert salt(A, cache_salt=A.cache_salt) != A.cache_salt


@pytest.mark.parametrize("given", ["", "x" * (GIVEN_MOST + 1), 5, True, ["x"], {"a": 1}])
def test_what_engines_would_refuse_is_refused_here(given: object) -> None:
    with pytest.raises(InvalidRequestError, match="cache_salt must be a string of 1 to 1024") as refusal:
        chat(A, cache_salt=given)
    assert refusal.value.param == "cache_salt"
    # engines of the shared ones say so themselves
    assert written(chat(OPEN, cache_salt=given))["cache_salt"] == given


def test_a_salt_that_was_lifted_out_of_the_body_is_read_whole() -> None:
    lifter = Lifter(HashAlgorithm.BLAKE3)
    lifter.feed(b'{"messages":[],"cache_salt":"%s"}' % (b"A" * 10_000))
    body = lifter.lifted()
    assert b"AAAA" not in body.skeleton
    with pytest.raises(InvalidRequestError, match="cache_salt"):
        parse_chat(body, policy=A)


BODIES: dict[str, tuple[Parse, dict[str, object]]] = {
    "completions": (parse_text, {"prompt": "x"}),
    "responses": (parse_responses, {"input": "x"}),
    "messages": (parse_messages, {"messages": []}),
    "pooling": (parse_pooling, {"input": ["x"]}),
    "scoring": (parse_scoring, {"queries": "x", "documents": ["y"]}),
    "generation": (parse_generation, {"token_ids": [1]}),
}


@pytest.mark.parametrize(("parse", "body"), BODIES.values(), ids=BODIES.keys())
def test_every_body_that_is_prefilled_has_its_tenants_salt(parse: Parse, body: dict[str, object]) -> None:
    request = parse(json.dumps(body).encode(), policy=A)
    assert written(request) == {**body, "cache_salt": A.cache_salt}
    assert written(parse(json.dumps(body).encode(), policy=OPEN)) == body


def test_exact_numbers_stay_as_they_are() -> None:
    request = parse_text(b'{"prompt":"x","seed":123456789012345678901234567890,"cache_salt":"mine"}', policy=A)
    assert written(request)["seed"] == 123456789012345678901234567890
    assert DIGEST.fullmatch(written(request)["cache_salt"])
