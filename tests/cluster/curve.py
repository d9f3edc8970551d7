"""Draws curves over time as an SVG that reads on a light and on a dark page. Pure; knows nothing of what it shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

WIDTH, PANEL, GAP = 860, 190, 72
LEFT, RIGHT, TOP, BOTTOM = 56, 120, 44, 44
"""Pixels: the text beside the axes is 12 high, and `RIGHT` holds the labels of limits."""

STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #59636e }
  .title { font-weight: 600; fill: #1f2328 }
  .page { fill: #ffffff } .grid { stroke: #d1d9e0 } .axis { stroke: #59636e } .mark { stroke: #8250df }
  .curve { stroke: #0969da } .limit { stroke: #bc4c00 } .limit-text { fill: #bc4c00 } .mark-text { fill: #8250df }
  line, polyline { fill: none; stroke-width: 1 } .curve { stroke-width: 1.5 }
  .limit { stroke-dasharray: 6 4 } .mark { stroke-dasharray: 2 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .title { fill: #f0f6fc } .page { fill: #0d1117 } .grid { stroke: #3d444d }
    .axis { stroke: #9198a1 } .curve { stroke: #4493f8 } .limit { stroke: #f0883e } .limit-text { fill: #f0883e }
    .mark { stroke: #ab7df8 } .mark-text { fill: #ab7df8 }
  }
"""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One curve with a y axis of its own from 0 to `top`; `limits` are horizontal lines, each with a label."""

    title: str
    values: Sequence[float]
    top: float
    limits: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True)
class Mark:
    """A moment that all panels show."""

    at: float
    label: str


def svg(times: Sequence[float], panels: Sequence[Panel], marks: Sequence[Mark] = (), *, describes: str) -> str:
    """Return the picture. `times` are seconds from 0, shared by all panels; the x axis is in minutes."""
    end = max(60.0, times[-1])
    height = TOP + len(panels) * PANEL + (len(panels) - 1) * GAP + BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(describes)}</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
    ]
    for number, panel in enumerate(panels):
        lines += _panel(panel, times, end, marks, top=TOP + number * (PANEL + GAP))
    return "\n".join([*lines, "</svg>", ""])


def _panel(panel: Panel, times: Sequence[float], end: float, marks: Sequence[Mark], *, top: int) -> Iterator[str]:
    right, bottom = WIDTH - RIGHT, top + PANEL

    def x(at: float) -> float:
        return round(LEFT + (right - LEFT) * at / end, 1)

    def y(value: float) -> float:
        return round(bottom - PANEL * min(value, panel.top) / panel.top, 1)

    yield f'<text class="title" x="{LEFT}" y="{top - 24}">{escape(panel.title)}</text>'
    for value in _ticks(panel.top):
        yield _line("grid", LEFT, y(value), right, y(value))
        yield _text(LEFT - 8, y(value) + 4, f"{value:g}", anchor="end")
    for minute in _ticks(end / 60):
        yield _line("axis", x(minute * 60), bottom, x(minute * 60), bottom + 4)
        yield _text(x(minute * 60), bottom + 18, f"{minute:g}" + (" min" if not minute else ""))
    yield _line("axis", LEFT, bottom, right, bottom)
    for mark in marks:
        yield _line("mark", x(mark.at), top, x(mark.at), bottom)
        yield _text(x(mark.at), top - 6, mark.label, kind="mark-text")
    for value, label in panel.limits:
        yield _line("limit", LEFT, y(value), right, y(value))
        yield _text(right + 6, y(value) + 4, label, kind="limit-text", anchor="start")
    points = " ".join(f"{x(at)},{y(value)}" for at, value in zip(times, panel.values, strict=True))
    yield f'<polyline class="curve" points="{points}"/>'


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def _text(x: float, y: float, says: str, *, kind: str = "", anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(says)}</text>'


def _ticks(top: float) -> list[float]:
    """Four to ten round values from 0 to `top`."""
    steps = [factor * 10.0**power for power in range(-2, 9) for factor in (1, 2, 2.5, 5)]
    step = next(step for step in steps if top / step <= 10)
    return [number * step for number in range(int(top / step) + 1)]


def round_up(value: float) -> float:
    """Return a round number above `value` where an axis may end."""
    for low, high in pairwise(factor * 10.0**power for power in range(-2, 9) for factor in (1, 1.5, 2, 3, 5, 7.5)):
        if value <= low:
            return low
        if value <= high:
            return high
    return value
