"""Names of models: what encoders are asked for where a request names an adapter, and what is said of encoders."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from epd.proxy.adapters import NO_ROUTE, UNKNOWN_MODEL, Complaint, read_models
from epd.proxy.arrival import Arrival
from epd.proxy.connectors import Connector
from epd.proxy.requests import MODELS_PATH
from epd.proxy.settings import EncoderFailurePolicy
from epd.proxy.transport import Call, Cause
from unit.proxy.engines import (
    Bench,
    Engines,
    Scripted,
    asking,
    bench,
    broken,
    document,
    joined,
    member,
    picture,
    settle,
    until_called,
)

E0, E1, D0 = member("e0"), member("e1"), member("d0")
LISTED: Mapping[str, str | None] = {"qwen": None, "legal": "qwen", "med": "qwen"}


@dataclass
class Serving(Engines):
    """Engines that know models by name: `served` by the first letter of an engine's name."""

    served: dict[str, Mapping[str, str | None]] = field(default_factory=dict)
    listed: list[str] = field(default_factory=list)

    async def send(self, call: Call) -> Scripted:
        name = call.address.removeprefix("http://")
        models = self.served[name[0]]
        if call.path == MODELS_PATH:
            self.listed.append(name)
            return document({"data": [{"id": model, "parent": parent} for model, parent in models.items()]})
        model = json.loads(joined(call.body)).get("model")
        if model is None or model in models:
            return await super().send(call)
        self.calls.append((name, {"model": model}))
        return document({"error": {"message": "does not exist", "type": "NotFoundError", "code": 404}}, 404)

    def asked(self) -> list[tuple[str, str]]:
        return [(name, body["model"]) for name, body in self.calls]


@dataclass
class Silent(Serving):
    """A prefill side whose engine d0 lists no models, which shows only when it is given up."""

    given_up: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self, call: Call) -> Scripted:
        if (call.address, call.path) == (D0.address, MODELS_PATH):
            self.listed.append("d0")
            await self.given_up.wait()
            raise broken(Cause.TIMEOUT)
        return await super().send(call)


def serving(
    encoders: Mapping[str, str | None], policy: EncoderFailurePolicy = EncoderFailurePolicy.FALLBACK
) -> tuple[Bench, Serving]:
    engines = Serving(served={"e": encoders, "d": LISTED})
    return bench(E0, D0, policy=policy, engines=engines), engines


def request(model: str | None, payload: str = "AAAA") -> Arrival:
    return asking([picture(payload)], **({} if model is None else {"model": model}))


async def test_adapters_that_encoders_lack_are_encoded_as_their_base_model() -> None:
    b, engines = serving({"qwen": None})
    reply = await b.exchange.answer(request("legal"))
    assert (reply.status, reply.headers["x-epd-encode"], reply.headers["x-epd-encoders"]) == (200, "encoded", "e0")
    assert engines.asked() == [("e0", "legal"), ("e0", "qwen"), ("d0", "legal")]
    # from then on at once
    engines.calls.clear()
    await b.exchange.answer(request("legal", "BBBB"))
    assert engines.asked() == [("e0", "qwen"), ("d0", "legal")]
    # of another adapter the list is known
    await b.exchange.answer(request("med"))
    assert engines.asked()[2:] == [("e0", "med"), ("e0", "qwen"), ("d0", "med")]
    assert engines.listed == ["d0"]
    assert b.exchange.adapters.complaints() == {}
    assert b.metrics.totals()["misconfigured"] == {}


async def test_encoders_that_have_the_adapter_are_asked_for_it() -> None:
    b, engines = serving({"qwen": None, "legal": "qwen"})
    await b.exchange.answer(request("legal"))
    await b.exchange.answer(request(None))
    assert [body.get("model") for _, body in engines.calls] == ["legal", "legal", None, None]
    assert engines.listed == []


async def test_what_was_learnt_is_forgotten_when_encoders_are_others() -> None:
    b, engines = serving({"qwen": None})
    await b.exchange.answer(request("legal"))
    engines.calls.clear()
    b.members.replace([E0, D0, member("d1")])
    await b.exchange.answer(request("legal"))
    assert engines.asked()[0] == ("e0", "qwen")
    engines.served["e"] = {"qwen": None, "legal": "qwen"}
    b.members.replace([E1, D0])
    engines.calls.clear()
    await b.exchange.answer(request("legal"))
    assert engines.asked()[0] == ("e1", "legal")


async def test_a_name_that_encoders_should_know_is_complained_of(caplog: pytest.LogCaptureFixture) -> None:
    b, engines = serving({"other": None})
    with caplog.at_level(logging.WARNING, logger="epd"):
        for picture in ("AAAA", "BBBB"):
            reply = await b.exchange.answer(request("qwen", picture))
            assert (reply.status, reply.headers["x-epd-encode"]) == (200, "fallback")
    assert b.exchange.adapters.complaints() == {"p": Complaint(UNKNOWN_MODEL, "qwen")}
    assert len(caplog.messages) == 1
    assert "the model qwen, which the prefill side serves: start both with" in caplog.messages[0]
    totals = b.metrics.totals()
    assert (totals["misconfigured"], totals["fallbacks"]) == ({UNKNOWN_MODEL: 2}, {UNKNOWN_MODEL: 2})
    # mended
    engines.served["e"] = LISTED
    await b.exchange.answer(request("qwen", "CCCC"))
    assert b.exchange.adapters.complaints() == {}


async def test_a_base_model_that_encoders_lack_too_is_complained_of() -> None:
    b, engines = serving({"other": None})
    await b.exchange.answer(request("legal"))
    assert engines.asked() == [("e0", "legal"), ("e0", "qwen"), ("d0", "legal")]
    assert b.exchange.adapters.complaints() == {"p": Complaint(UNKNOWN_MODEL, "qwen")}


async def test_a_name_that_nobody_knows_is_the_clients_mistake() -> None:
    b, engines = serving({"qwen": None})
    for _ in range(3):
        reply = await b.exchange.answer(request("typo"))
        assert reply.status == 404
    assert (b.exchange.adapters.complaints(), b.metrics.totals()["misconfigured"]) == ({}, {})
    # whoever makes names up does not make the prefill side list its models each time
    assert engines.listed == ["d0"]


async def test_under_fail_the_404_is_the_answer() -> None:
    b, _ = serving({"other": None}, EncoderFailurePolicy.FAIL)
    reply = await b.exchange.answer(request("qwen"))
    assert (reply.status, json.loads(reply.body)["error"]["type"]) == (404, "NotFoundError")
    assert b.exchange.adapters.complaints() == {"p": Complaint(UNKNOWN_MODEL, "qwen")}


@pytest.mark.parametrize("answer", [b"404 page not found", b'{"detail":"Not Found"}', b'{"error":"?"}', b"[]"])
async def test_what_is_no_vllm_server_is_complained_of(answer: bytes) -> None:
    b, engines = serving(LISTED)
    engines.scripts["e0"] = [Scripted(status=404, chunks=[answer])]
    await b.exchange.answer(request("qwen"))
    assert b.exchange.adapters.complaints() == {"p": Complaint(NO_ROUTE, "")}
    assert (engines.listed, b.metrics.totals()["misconfigured"]) == ([], {NO_ROUTE: 1})
    await b.exchange.answer(request("qwen"))
    assert b.exchange.adapters.complaints() == {}


async def test_an_adapter_and_its_base_model_share_what_is_known_of_an_item() -> None:
    engines = Serving(served={"e": {"qwen": None}, "d": LISTED})
    b = bench(E0, D0, engines=engines, connector=Connector.MANAGED, hint_seconds=60)
    await b.exchange.answer(request("legal"))
    engines.calls.clear()
    await b.exchange.answer(request("legal"))
    await b.exchange.answer(request("qwen"))
    assert engines.asked() == [("d0", "legal"), ("d0", "qwen")]


async def test_a_list_that_does_not_come_is_waited_for_once() -> None:
    engines = Silent(served={"e": {"other": None}, "d": LISTED})
    b = bench(E0, D0, engines=engines)
    tasks = [asyncio.create_task(b.exchange.answer(request("qwen", picture))) for picture in ("AAAA", "BBBB", "CCCC")]
    await until_called(engines, 3)
    await settle()
    assert engines.listed == ["d0"]
    engines.given_up.set()
    replies = [await task for task in tasks]
    assert [reply.headers["x-epd-encode"] for reply in replies] == ["fallback"] * 3
    # those who waited while it was asked for in vain don't ask again, one after another
    assert engines.listed == ["d0"]
    await b.exchange.answer(request("qwen", "DDDD"))
    assert engines.listed == ["d0", "d0"]


async def test_one_pairing_does_not_wait_for_the_list_of_another() -> None:
    engines = Silent(served={"e": {"other": None}, "d": LISTED})
    b = bench(E0, D0, engines=engines)
    waiting = asyncio.create_task(b.exchange.answer(request("qwen")))
    await until_called(engines, 1)
    await settle()
    b.members.replace([member("e1", "q"), member("d1", "q")])
    other = await asyncio.wait_for(b.exchange.answer(request("qwen", "BBBB")), 10)
    assert (other.headers["x-epd-encode"], engines.listed) == ("fallback", ["d0", "d1"])
    engines.given_up.set()
    await waiting


async def test_nothing_is_said_of_encoders_that_are_gone() -> None:
    b, _ = serving({"other": None})
    await b.exchange.answer(request("qwen"))
    b.members.replace([D0])
    # without another request
    assert b.exchange.adapters.complaints() == {}


def test_lists_of_models() -> None:
    cards = [{"id": "qwen", "parent": None}, {"id": "base"}, {"id": "legal", "parent": "qwen"}]
    assert read_models(json.dumps({"data": cards}).encode()) == {"qwen": None, "base": None, "legal": "qwen"}
    for answer in (b"", b"[]", b"{}", b'{"data":1}', b'{"data":[1]}', b'{"data":[{}]}'):
        assert read_models(answer) is None
