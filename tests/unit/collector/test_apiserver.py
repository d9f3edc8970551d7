from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from epd.collector import apiserver
from epd.collector.apiserver import ApiServer
from epd.collector.endpoint import ApiError, Endpoint, by_address
from unit.collector.fake_api import Answer, FakeApi, Request, refusal, serving

PODS = "/api/v1/namespaces/ai/pods"


def named(*names: str) -> list[dict[str, Any]]:
    return [{"metadata": {"name": name}} for name in names]


def name_of(item: dict[str, Any]) -> str:
    return str(item["metadata"]["name"])


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with serving(FakeApi(collections={PODS: named("a", "b", "c", "d", "e")})) as fake:
        yield fake


def client(api: FakeApi, **settings: Any) -> ApiServer:
    return ApiServer(by_address(api.url), **({"page_size": 2} | settings))


def test_a_list_is_read_page_by_page_and_never_from_a_cache(api: FakeApi) -> None:
    assert client(api).list_all(PODS, name_of) == ["a", "b", "c", "d", "e"]
    assert [request.query for request in api.seen] == [
        {"limit": "2"},
        {"limit": "2", "continue": "2"},
        {"limit": "2", "continue": "4"},
    ]


def test_an_empty_list_is_a_list(api: FakeApi) -> None:
    api.collections[PODS] = []
    assert client(api).list_all(PODS, name_of) == []


def test_metadata_alone_can_be_asked_for(api: FakeApi) -> None:
    client(api).list_all(PODS, name_of, metadata_only=True)
    assert {request.headers["accept"] for request in api.seen} == {
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    }
    assert [request.query for request in api.seen] == [{"limit": "20"}], "it has a tenth of the size"


def test_an_empty_list_of_metadata_is_a_list(api: FakeApi) -> None:
    """The one kind that a real API server answers with null."""
    empty = {"kind": "PartialObjectMetadataList", "metadata": {}, "items": None}
    api.fault = lambda _: Answer(body=json.dumps(empty).encode())
    assert client(api).list_all(PODS, name_of, metadata_only=True) == []
    del empty["items"]
    with pytest.raises(ApiError, match="no list but PartialObjectMetadataList"):
        client(api).list_all(PODS, name_of, metadata_only=True)


def test_an_expired_page_begins_the_list_anew_and_keeps_nothing_of_the_first(api: FakeApi) -> None:
    def fault(request: Request) -> Answer | None:
        if request.query.get("continue") == "4" and len(api.seen) == 3:
            api.collections[PODS] = named("x", "y", "z")
            return refusal(410, "The provided continue parameter is too old")
        return None

    api.fault = fault
    assert client(api).list_all(PODS, name_of) == ["x", "y", "z"]


def test_pages_of_two_moments_are_not_one_list(api: FakeApi) -> None:
    def fault(request: Request) -> Answer | None:
        api.version = "8" if len(api.seen) == 2 else "9"
        return None

    api.fault = fault
    assert client(api).list_all(PODS, name_of) == ["a", "b", "c", "d", "e"]
    assert [request.query.get("continue") for request in api.seen] == [None, "2", None, "2", "4"]


def test_the_last_attempt_asks_for_everything_at_once(api: FakeApi) -> None:
    api.fault = lambda request: refusal(410, "too old") if "continue" in request.query else None
    assert client(api).list_all(PODS, name_of) == ["a", "b", "c", "d", "e"]
    assert api.seen[-1].query == {}


def test_a_first_page_that_is_gone_is_an_error(api: FakeApi) -> None:
    api.fault = lambda _: refusal(410, "too old")
    with pytest.raises(ApiError, match="HTTP 410: too old"):
        client(api).list_all(PODS, name_of)
    assert len(api.seen) == 1


WHOLE = json.dumps({"kind": "PodList", "metadata": {}, "items": named("a")}).encode()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(body=WHOLE[:-5], announced=len(WHOLE)), "IncompleteRead"),
        (Answer(body=WHOLE[:-5]), "no JSON, perhaps cut off"),
        (Answer(body=WHOLE[:-5], chunked=True), "IncompleteRead"),
        # even where what came would be a whole document
        (Answer(body=WHOLE, announced=len(WHOLE) + 1), "IncompleteRead"),
        (Answer(body=WHOLE, chunked=True), "IncompleteRead"),
        (Answer(body=b"[]"), "no object"),
        (Answer(body=b'{"kind": "Pod", "metadata": {}}'), "no list but Pod"),
        (Answer(body=b'{"metadata": {}, "items": []}'), "an object without kind"),
        (Answer(body=b'{"kind": "PodList", "items": []}'), "no list but PodList"),
        (Answer(body=b'{"kind": "PodList", "metadata": {}, "items": null}'), "no list but PodList"),
        (Answer(body=b'{"kind": "PodList", "metadata": {}, "items": [1]}'), "an item is no object"),
        (Answer(status=301), "HTTP 301"),
        (Answer(status=500, body=b"<html>"), "HTTP 500: <html>"),
    ],
)
@pytest.mark.parametrize("page", [1, 2])
def test_what_is_no_whole_list_is_an_error(api: FakeApi, answer: Answer, words: str, page: int) -> None:
    api.fault = lambda _: answer if len(api.seen) == page else None
    with pytest.raises(ApiError, match=words):
        client(api).list_all(PODS, name_of)


def test_words_are_the_same_whatever_page_failed(api: FakeApi) -> None:
    api.fault = lambda request: refusal(500, "no leader") if "continue" in request.query else None
    with pytest.raises(ApiError) as caught:
        client(api).list_all(PODS, name_of)
    assert str(caught.value) == f"GET {PODS}: HTTP 500: no leader"


def test_a_refusal_names_the_missing_right(api: FakeApi) -> None:
    api.fault = lambda _: refusal(403, 'pods is forbidden: User "u" cannot list resource "pods"')
    with pytest.raises(ApiError, match='HTTP 403: pods is forbidden: User "u" cannot list') as caught:
        client(api).list_all(PODS, name_of)
    assert caught.value.status == 403


def test_an_answer_that_is_too_large_is_refused(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apiserver, "MOST_BYTES", len(WHOLE) - 1)
    api.fault = lambda _: Answer(body=WHOLE)
    with pytest.raises(ApiError, match="larger than"):
        client(api).list_all(PODS, name_of)


def test_a_server_that_does_not_answer_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = ApiServer(Endpoint(host="127.0.0.1", port=silent.getsockname()[1]), request_seconds=0.05)
        with pytest.raises(ApiError, match="TimeoutError"):
            server.list_all(PODS, name_of)


def test_a_trickle_does_not_outlast_the_deadline() -> None:
    """Each byte comes in time for itself: the clock passes a second with every look at it."""
    ticks = iter(range(1000))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def trickle() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                try:
                    while True:
                        peer.sendall(b" ")
                except OSError:
                    pass

        thread = threading.Thread(target=trickle)
        thread.start()
        slow = ApiServer(
            Endpoint(host="127.0.0.1", port=server.getsockname()[1]), request_seconds=5, clock=lambda: next(ticks)
        )
        with pytest.raises(ApiError, match="no whole answer in time"):
            slow.get(PODS)
        thread.join()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ApiError, match="ConnectionRefusedError"):
        ApiServer(Endpoint(host="127.0.0.1", port=port)).get(PODS)


def test_pages_may_not_take_longer_than_the_list_has(api: FakeApi) -> None:
    """Each page in time, all together not."""
    now = [0.0]

    def fault(_: Request) -> Answer | None:
        now[0] += 10
        return None

    api.fault = fault
    server = client(api, page_size=1, request_seconds=15, list_seconds=25, clock=lambda: now[0])
    with pytest.raises(ApiError, match="no whole answer in time"):
        server.list_all(PODS, name_of)


def test_an_object_that_cannot_be_read_spoils_the_list(api: FakeApi) -> None:
    api.collections[PODS][-1] = {"metadata": None}
    with pytest.raises(ApiError, match=f"GET {PODS}: an object can't be read: TypeError"):
        client(api).list_all(PODS, name_of)


def test_one_object(api: FakeApi) -> None:
    api.objects["/api/v1/namespaces/ai/persistentvolumeclaims/ec"] = {"kind": "PersistentVolumeClaim"}
    assert client(api).get("/api/v1/namespaces/ai/persistentvolumeclaims/ec") == {"kind": "PersistentVolumeClaim"}
    with pytest.raises(ApiError) as caught:
        client(api).get("/api/v1/namespaces/ai/persistentvolumeclaims/other")
    assert caught.value.status == 404


def test_no_token_goes_over_plain_http(api: FakeApi, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    endpoint = by_address(api.url)
    ApiServer(Endpoint(host=endpoint.host, port=endpoint.port, token_file=str(token))).list_all(PODS, name_of)
    assert "authorization" not in api.seen[0].headers
    with pytest.raises(ApiError, match="not sent over http"):
        by_address(api.url, token_file=str(token))


def test_a_missing_token_is_an_error(tmp_path: Path) -> None:
    endpoint = Endpoint(host="127.0.0.1", port=1, tls=ssl.create_default_context(), token_file=str(tmp_path / "none"))
    with pytest.raises(ApiError, match="token can't be read"):
        ApiServer(endpoint).get(PODS)
