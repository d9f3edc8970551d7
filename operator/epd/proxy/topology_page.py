"""The topology as a page for people: one file that needs nothing from elsewhere, and no script for what is shown.

The script asks for the page again every two seconds and shows what changed as rates. Pure; reads nothing but the
document that `/topology` is for programs.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

Document = Mapping[str, Any]

SHOWN_MEMBERS: Final = 500
"""Rows of engines; more than that nobody reads, and a browser lays them out anew every two seconds."""

_STYLE: Final = """
:root { color-scheme: light dark; --line: #d7dbe0; --soft: #f4f6f8; --dim: #5a6470; --text: #16191d; --page: #fff;
  --good: #1a7f37; --bad: #cf222e; --warn: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --line: #343b44; --soft: #1b2027; --dim: #9aa4b0; --text: #e6e9ed;
  --page: #111418; --good: #3fb950; --bad: #ff7b72; --warn: #d29922; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--page); color: var(--text);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; } h2 .dim { font-weight: 400; }
p { margin: .3rem 0; } .dim { color: var(--dim); }
dl { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.25rem 0; }
dl div { background: var(--soft); border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .9rem;
  min-width: 7.5rem; }
dt { color: var(--dim); font-size: .8rem; } dd { margin: 0; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .4rem .75rem .4rem 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--dim); font-weight: 500; font-size: .8rem; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
meter { width: 4rem; vertical-align: middle; }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.notice { border-left: 4px solid var(--warn); background: var(--soft); padding: .5rem .9rem; }
code { font: 13px ui-monospace, monospace; }
"""

_SCRIPT: Final = """
"use strict";
const every = 2000;
const rated = (root) => [...root.querySelectorAll("[data-rate]")];
const totals = (root) => new Map(rated(root).map((cell) => [cell.dataset.rate, +cell.dataset.total]));
async function refresh() {
  const old = document.querySelector("main");
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, cache: "no-store" });
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
    const seconds = page.dataset.time - old.dataset.time, before = totals(old);
    for (const cell of rated(page)) {
      const more = cell.dataset.total - before.get(cell.dataset.rate);
      if (seconds > 0 && more >= 0) cell.textContent = (more / seconds).toFixed(more && more < 10 * seconds ? 1 : 0);
    }
    old.replaceWith(document.importNode(page, true));
    document.getElementById("silent").hidden = true;
  } catch {
    document.getElementById("silent").hidden = false;
  }
}
setInterval(() => document.hidden || refresh(), every);
refresh();
"""


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": (
        f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "vary": "accept",
}
"""What the page is served with."""


def wants_page(accept: str) -> bool:
    """Whether whoever accepts that is a browser that shows a page, and no program that reads JSON."""
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    return "text/html" in kinds and "application/json" not in kinds[: kinds.index("text/html")]


def render(document: Document) -> str:
    """Write the page."""
    name = escape("/".join(part for part in (document["namespace"], document["epd"]) if part) or "epd-proxy")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{_STYLE}</style></head>\n<body><h1>{name}</h1>\n"
        '<p class="notice" id="silent" hidden role="status">The proxy does not answer; this is what it said last.</p>\n'
        f"{_main(document)}\n"
        "<noscript><p class=dim>Rates need JavaScript. Load the page again for the present state.</p></noscript>\n"
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


def _main(document: Document) -> str:
    members = document["members"]
    pairings = sorted({member["pairing"] for member in members[:SHOWN_MEMBERS]})
    rest = len(members) - SHOWN_MEMBERS
    parts = [
        f'<main data-time="{document["time"]:.3f}">',
        f'<p class="dim">{escape(_roles(document["roles"]))} · encoderFailurePolicy '
        f"{escape(document['encoderFailurePolicy'])}</p>",
        *_notices(document),
        _tiles(document),
        *(_pairing(name, document) for name in pairings),
        f'<p class="dim">and {rest} more engines</p>' if rest > 0 else "",
        "</main>",
    ]
    return "\n".join(part for part in parts if part)


def _roles(roles: Iterable[str]) -> str:
    order = ["encode", "prefill", "prefill-decode", "decode"]
    return " → ".join(role for role in order if role in set(roles))


def _notices(document: Document) -> list[str]:
    said = []
    if document["suspended"]:
        said.append("Suspended: every request is answered 503.")
    if document["draining"]:
        said.append("Draining: the process is about to end.")
    if not document["members"]:
        said.append("No engine is known.")
    for pairing, wrong in document["misconfigured"].items():
        said.append(f"Misconfigured, pairing {pairing}: {wrong['message']}")
    return [f'<p class="notice">{escape(text)}</p>' for text in said]


def _tiles(document: Document) -> str:
    now = {"In flight": document["inFlight"], "Queued": document["queued"]}
    tiles = [f"<div><dt>{label}</dt><dd>{number}</dd></div>" for label, number in now.items()]
    for label, total in document["totals"].items():
        rate = f'<dd data-rate="{escape(label)}" data-total="{total}" title="{total} in all">-</dd>'
        tiles.append(f"<div><dt>{escape(label)}/s</dt>{rate}</div>")
    return f"<dl>{''.join(tiles)}</dl>"


def _pairing(name: str, document: Document) -> str:
    members: Sequence[Document] = document["members"]
    order = {role: place for place, role in enumerate(("encode", "prefill", "prefill-decode", "decode"))}
    shown_rows = [member for member in members[:SHOWN_MEMBERS] if member["pairing"] == name]
    shown_rows.sort(key=lambda member: (order.get(member["role"], len(order)), member["name"]))
    ours = [member for member in members if member["pairing"] == name]
    most = max([1, *(member["inFlight"] for member in members)])
    versions = ", ".join(sorted({member["modelVersion"] for member in ours} - {""}))
    ready = sum(member["ready"] for member in ours)
    shown = f' <span class="dim">· version {escape(versions)}</span>' if versions else ""
    wrong = name in document["misconfigured"]
    rows = "\n".join(_row(member, most, wrong=wrong and member["role"] == "encode") for member in shown_rows)
    return (
        f"<section><h2>Pairing <code>{escape(name) or '-'}</code>{shown} "
        f'<span class="dim">· {ready} of {len(ours)} ready</span></h2>\n'
        '<div class="wide"><table><thead><tr><th scope="col">Engine</th><th scope="col">Role</th>'
        '<th scope="col">State</th><th scope="col" class="number">In flight</th><th></th>'
        '<th scope="col" class="number">Begun/s</th><th scope="col">Address</th></tr></thead>'
        f"<tbody>\n{rows}\n</tbody></table></div></section>"
    )


def _row(member: Document, most: int, *, wrong: bool) -> str:
    kind, state = _state(member, wrong=wrong)
    name, load = escape(member["name"]), member["inFlight"]
    key = escape(f"engine {member['name']}")
    return (
        f'<tr><th scope="row"><code>{name}</code></th><td>{escape(member["role"])}</td>'
        f'<td class="{kind}">{"●" if member["ready"] else "○"} {escape(state)}</td>'
        f'<td class="number">{load}</td><td><meter max="{most}" value="{load}" aria-hidden="true"></meter></td>'
        f'<td class="number" data-rate="{key}" data-total="{member["begun"]}" title="{member["begun"]} in all">-</td>'
        f"<td><code>{escape(member['address'])}</code></td></tr>"
    )


def _state(member: Document, *, wrong: bool) -> tuple[str, str]:
    """The class and the word for what an engine may get; `wrong` says that it refuses what it should do."""
    if not member["ready"]:
        return "warn", "not ready"
    if wrong:
        return "bad", "misconfigured"
    if member["health"] == "healthy":
        return "good", "ready"
    return ("bad" if member["health"] == "ejected" else "warn"), str(member["health"])
