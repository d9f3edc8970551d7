from __future__ import annotations

import pytest

from epd.proxy.errors import InvalidRequestError, MethodNotAllowedError, NotFoundError
from epd.proxy.routes import OPENABLE, ROUTES, STORED_ROUTES, TWO_LEGS, Handling, find

TABLE = {
    "GET /health": Handling.HEALTH,
    "GET /healthz": Handling.HEALTH,
    "GET /v1/models": Handling.MODELS,
    "POST /v1/chat/completions": Handling.TWO_LEGS,
    "POST /v1/completions": Handling.TWO_LEGS,
    "POST /v1/responses": Handling.ENGINE,
    "POST /v1/messages": Handling.ENGINE,
    "POST /v1/messages/count_tokens": Handling.ENGINE,
    "POST /tokenize": Handling.ENGINE,
    "POST /detokenize": Handling.ENGINE,
    "POST /v1/embeddings": Handling.ENGINE,
    "POST /pooling": Handling.ENGINE,
    "POST /score": Handling.ENGINE,
    "POST /v1/score": Handling.ENGINE,
    "POST /rerank": Handling.ENGINE,
    "POST /v1/rerank": Handling.ENGINE,
    "POST /v2/rerank": Handling.ENGINE,
    "POST /invocations": Handling.ENGINE,
    "POST /inference/v1/generate": Handling.ENGINE,
}


def test_the_list_is_this_one() -> None:
    assert {f"{route.method} {route.path}": route.handling for route in ROUTES} == TABLE
    for route in ROUTES:
        match = find(route.method, route.path, opened=OPENABLE)
        assert (match.route, match.target, match.response_id) == (route, route.path, None)
        assert (route.parse is None) == (route.method == "GET")
    assert {"/v1/chat/completions", "/v1/completions"} == TWO_LEGS


@pytest.mark.parametrize(
    "path",
    [
        # of the engine: for platforms, disaggregation, administration and development
        *["/invocations", "/inference/v1/generate", "/ping", "/version", "/load", "/metrics", "/docs", "/openapi.json"],
        *["/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter", "/unload_lora_adapter"],
        *["/sleep", "/wake_up", "/is_sleeping", "/release_kv_cache_memory", "/collective_rpc", "/server_info"],
        *["/reset_prefix_cache", "/reset_mm_cache", "/reset_encoder_cache", "/start_profile", "/stop_profile"],
        *["/pause", "/resume", "/is_paused", "/abort_requests", "/update_weights", "/init_weight_transfer_engine"],
        *["/scale_elastic_ep", "/is_scaling_elastic_ep", "/fault_tolerance/apply", "/tokenizer_info"],
        *["/kv_event_sources", "/get_world_size", "/weight_info", "/v1/chat/completions/render", "/v1/messages/render"],
        *["/v1/chat/completions/batch", "/v1/audio/transcriptions", "/classify", "/v2/embed", "/generative_scoring"],
        # read otherwise by another reader
        *["/v1/chat/completions/", "//v1/chat/completions", "/v1/../sleep", "/v1/chat%2fcompletions", "/V1/models"],
        *["/v1/responses/", "/v1/responses/a/b", "/v1/responses/..", "/v1/responses/../cancel", "/v1/responses/a%2fb"],
        *["/v1/responses/a/cancel/", "/v1/responses//cancel", "/v1/responses/" + "a" * 129, "/", "", "*", "/health;x"],
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_all_else_is_not_there(method: str, path: str) -> None:
    with pytest.raises(NotFoundError, match="there are GET /health"):
        find(method, path)


def test_a_refusal_lists_what_is_served_without_an_option_and_nothing_else() -> None:
    with pytest.raises(NotFoundError) as refusal:
        find("GET", "/x")
    listed = refusal.value.message.removeprefix("no route /x; there are ").split(", ")
    assert listed == [
        f"{route.method} {route.path}" for route in (*ROUTES, *STORED_ROUTES) if route.path not in OPENABLE
    ]
    for method, _, path in (line.partition(" ") for line in listed):
        assert find(method, path.replace("{id}", "resp_1")).route.method == method


def test_an_option_opens_one_route_each() -> None:
    assert find("POST", "/invocations", opened=frozenset({"/invocations"})).target == "/invocations"
    with pytest.raises(NotFoundError):
        find("POST", "/inference/v1/generate", opened=frozenset({"/invocations"}))


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST"),
        ("HEAD", "/v1/chat/completions", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("PUT", "/v1/responses/resp_1", "GET, DELETE, HEAD"),
        ("GET", "/v1/responses/resp_1/cancel", "POST"),
    ],
)
def test_another_method_is_told_which(method: str, path: str, allowed: str) -> None:
    with pytest.raises(MethodNotAllowedError) as refusal:
        find(method, path)
    assert refusal.value.headers()["allow"] == allowed


@pytest.mark.parametrize(
    ("method", "target", "route", "sent"),
    [
        ("GET", "/v1/responses/resp_1", "/v1/responses/{id}", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1", "/v1/responses/{id}", "/v1/responses/resp_1"),
        ("POST", "/v1/responses/resp_1/cancel", "/v1/responses/{id}/cancel", "/v1/responses/resp_1/cancel"),
        (
            "GET",
            "/v1/responses/resp_1?stream=true&starting_after=7",
            "/v1/responses/{id}",
            "/v1/responses/resp_1?stream=true&starting_after=7",
        ),
    ],
)
def test_stored_responses_are_named(method: str, target: str, route: str, sent: str) -> None:
    match = find(method, target)
    assert (match.route.path, match.route.handling) == (route, Handling.STORED)
    assert (match.target, match.response_id) == (sent, "resp_1")


def test_head_is_taken_where_get_is() -> None:
    assert find("HEAD", "/v1/models") is find("GET", "/v1/models")
    assert find("HEAD", "/v1/responses/resp_1") == find("GET", "/v1/responses/resp_1")


def test_queries_of_other_routes_do_not_go_on() -> None:
    assert find("POST", "/v1/messages?beta=true").target == "/v1/messages"


def test_a_query_that_readers_may_read_differently_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        find("GET", "/v1/responses/resp_1?stream=%74rue")
