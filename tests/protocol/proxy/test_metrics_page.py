"""The page of metrics after requests of many kinds: what Prometheus reads of it, and what its documentation says."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from protocol.proxy import stubs
from protocol.proxy.proxies import Proxy, proxy
from protocol.proxy.stubs import CHAT, decoder, encoder, image, text

DOCUMENTED = Path(__file__).parents[3] / "docs" / "proxy.md"
UNITS = ("_seconds", "_bytes")
# counts of things; anything that is measured in a unit is named by it
COUNTED = {"gauge", "counter"}


async def page(p: Proxy) -> dict[str, Metric]:
    text_of_page = await (await p.admin.get("/metrics")).text()
    families = list(text_string_to_metric_families(text_of_page))
    assert len({family.name for family in families}) == len(families)
    return {family.name: family for family in families if family.name.startswith("epd_")}


async def used(p: Proxy) -> dict[str, Metric]:
    """The page after requests that end in each way."""
    await (await p.chat(text(), image(), stream=True)).read()
    await (await p.chat(text())).read()
    await (await p.chat({"type": "nothing"})).read()
    await (await p.http.get("/nowhere")).read()
    with pytest.raises(aiohttp.ClientError):
        await (await p.chat(text("break"), stream=True)).read()
    await (await p.chat(text("fail"))).read()
    return await page(p)


async def _behave(engine: stubs.StubEngine, request: stubs.web.Request, document: dict[str, object]) -> object:
    said = str(document["messages"])
    if "break" in said:
        return await stubs.dies_after(stubs.ROLE_CHUNK, stubs.content_chunk("r"))(engine, request, document)
    if "fail" in said:
        return stubs.web.json_response({}, status=500)
    return await stubs.generate(engine, request, document)


async def test_each_request_ends_in_one_way_and_takes_its_bytes() -> None:
    async with proxy(encoder(), decoder(behave=_behave)) as p:  # type: ignore[arg-type] # returns what aiohttp takes
        families = await used(p)
    counts = {
        (sample.labels["route"], sample.labels["outcome"]): sample.value
        for sample in families["epd_proxy_request_seconds"].samples
        if sample.name.endswith("_count")
    }
    assert counts == {
        (CHAT, "answered"): 2,
        (CHAT, "refused"): 1,
        (CHAT, "broken"): 1,
        (CHAT, "failed"): 1,
        ("other", "refused"): 1,
    }
    sizes = {name: families[f"epd_proxy_{name}_body_bytes"].samples for name in ("request", "response")}
    for samples in sizes.values():
        assert {sample.labels["route"]: sample.value > 0 for sample in samples}[CHAT]


async def test_names_follow_the_conventions() -> None:
    async with proxy(encoder(), decoder(behave=_behave)) as p:  # type: ignore[arg-type] # returns what aiohttp takes
        families = await used(p)
    for name, family in families.items():
        assert re.fullmatch(r"epd_proxy_[a-z]+(_[a-z]+)*", name), name
        assert family.documentation, name
        assert not family.documentation.endswith("."), name
        assert family.type in {"counter", "gauge", "histogram"}, name
        for sample in family.samples:
            assert {"namespace", "epd"} <= sample.labels.keys(), name
            # tools drop labels of these names, or give them by themselves
            assert not sample.labels.keys() & {"job", "instance", "pod", "container", "quantile"}, name
            if family.type == "counter":
                assert sample.name == f"{name}_total"
        if family.type == "histogram":
            assert name.endswith(UNITS), name
            _check_histogram(family)


def _check_histogram(family: Metric) -> None:
    """Buckets grow, and the last of them has all."""
    series: dict[tuple[tuple[str, str], ...], list[float]] = {}
    counts = {}
    for sample in family.samples:
        labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
        if sample.name.endswith("_bucket"):
            series.setdefault(labels, []).append(sample.value)
            last = sample.labels["le"]
        elif sample.name.endswith("_count"):
            counts[labels] = sample.value
    assert last == "+Inf"
    assert series.keys() == counts.keys()
    assert all(buckets == sorted(buckets) and buckets[-1] == counts[labels] for labels, buckets in series.items())


async def test_the_documentation_has_all_and_no_more() -> None:
    async with proxy(encoder(), decoder()) as p:
        shown = await page(p)
    section = DOCUMENTED.read_text().partition("\n## Metrics\n")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `epd_")]
    documented = {name.removesuffix("_total") for cell in cells for name in re.findall(r"`(epd_\w+)`", cell)}
    of_tenants = {name for name in documented if "tenant" in name or "api_key" in name}
    assert documented - of_tenants == shown.keys()
