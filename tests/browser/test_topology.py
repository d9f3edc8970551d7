"""The topology page as a browser shows it: what is there, what changes, and that it needs nothing else."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from browser import chromium
from browser.chromium import Tab
from browser.scene import NOBODY, Scene, pod, scene

EVIL = "<img src=x onerror=document.title='hacked'>"
NAMED = "(row) => [row.cells[0].innerText, row.innerText]"
ROWS = f"Object.fromEntries([...document.querySelectorAll('tbody tr')].map({NAMED}))"
TILES = "Object.fromEntries([...document.querySelectorAll('dl div')].map((tile) => tile.innerText.split('\\n')))"
RATED = "[...document.querySelectorAll('[data-rate]')].some((cell) => +cell.textContent > 0)"


@asynccontextmanager
async def looking() -> AsyncIterator[tuple[Scene, Tab]]:
    path = chromium.find()
    if path is None:
        reason = "no Chromium: python -m cluster browser installs it"
        pytest.fail(reason) if os.environ.get("EPD_NO_SKIP") else pytest.skip(reason)
    evil = pod(EVIL, "encode", "rev-1", NOBODY, ready=False)
    async with scene(evil) as shown, chromium.browsing(path) as tab:
        yield shown, tab


async def test_it_shows_engines_and_what_changes() -> None:
    async with looking() as (shown, tab):
        await tab.open(shown.url)
        await tab.until(RATED)
        assert await tab.value("document.title") == "ns/qwen2-vl"
        heads = await tab.value("[...document.querySelectorAll('h2')].map((head) => head.innerText)")
        assert heads == [
            "Pairing rev-1 · version v1-qwen2-vl-2b · 3 of 5 ready",
            "Pairing rev-2 · version v2-qwen2-vl-2b · 2 of 2 ready",
        ]
        rows = await tab.value(ROWS)
        assert "● ready" in rows["qwen2-vl-encode-6b7f9-x2v4k"]
        assert "○ not ready" in rows["qwen2-vl-prefill-decode-5c9d4-hw5tn"]
        assert "○ not ready" in rows[EVIL]
        await tab.until(f"/ejected|half-open/.test({ROWS}['qwen2-vl-encode-6b7f9-zk8lp'])")
        tiles = await tab.value(TILES)
        assert int(tiles["In flight"]) >= 5
        # what it was when the page was loaded is none of what it is now
        before = await tab.value("document.querySelector('main').dataset.time")
        await tab.until(f"document.querySelector('main').dataset.time > {before}")
        assert tab.problems == []
        assert set(tab.asked) <= {shown.url, "data:,"}


async def test_it_is_readable_in_the_dark_and_on_a_telephone() -> None:
    async with looking() as (shown, tab):
        await tab.open(shown.url)
        colours = "['color', 'backgroundColor'].map((name) => getComputedStyle(document.body)[name])"
        pictures = {}
        for on in (False, True):
            await tab.dark(on=on)
            pictures[on] = await tab.value(colours)
        assert pictures[False] == ["rgb(22, 25, 29)", "rgb(255, 255, 255)"]
        assert pictures[True] == ["rgb(230, 233, 237)", "rgb(17, 20, 24)"]
        await tab.picture(width=390, height=800)
        assert await tab.value("document.documentElement.scrollWidth <= 390")


async def test_without_javascript_it_shows_the_present_state() -> None:
    async with looking() as (shown, tab):
        await tab.call("Emulation.setScriptExecutionDisabled", value=True)
        await tab.open(shown.url)
        assert len(await tab.value(ROWS)) == 7
        assert await tab.value("document.querySelector('noscript').innerText") != ""
        assert tab.asked.count(shown.url) == 1


async def test_it_says_so_when_the_proxy_is_gone() -> None:
    async with looking() as (shown, tab):
        await tab.open(shown.url)
        await tab.until(RATED)
        assert await tab.value("document.getElementById('silent').hidden") is True
        shown.proxy.process.kill()
        await tab.until("!document.getElementById('silent').hidden")
        assert len(await tab.value(ROWS)) == 7
