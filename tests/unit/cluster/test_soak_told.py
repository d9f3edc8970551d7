"""That a soak fails for each thing that must not happen, and what its picture shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from cluster.soak_load import KINDS, Answers
from cluster.soak_told import Soaked, failures, line, picture, summary
from cluster.soak_watch import Look, Seen

SVG = "{http://www.w3.org/2000/svg}"


def soaked(*, peak: float = 0.75) -> Soaked:
    """A minute that went well."""
    looks = [
        Look(at=float(at), share=peak if at == 30 else 0.6, entries=100, versions=("a",), deleted=at * 10.0)
        for at in range(60)
    ]
    answers = Answers(right=Counter(dict.fromkeys(KINDS, 5)), pictures=20, seconds=[0.1, 0.2, 0.3])
    seen = Seen(looks=looks, deleted={"watermark": 590.0}, restarts={"encode/engine": 0})
    seen.engines["encode"] = Counter(hits=20)
    return Soaked(
        seconds=60,
        high=70,
        low=50,
        volume_bytes=1000,
        answers=answers,
        seen=seen,
        written=600,
        rate_bytes=10,
        unwritten=Counter(),
        versions=("a", "b"),
        changes=(20.0,),
        left=(),
        untouched=True,
    )


def test_a_good_soak_has_no_failures() -> None:
    assert failures(soaked()) == []
    assert soaked().bound == 80


FAULTS: dict[str, Callable[[Soaked], object]] = {
    "1 wrong answers": lambda it: it.answers.wrong.append("red: blue"),
    "1 failed requests": lambda it: it.answers.failed.append("503"),
    "a kind of request was never answered": lambda it: it.answers.right.pop("text"),
    "restarted: {'encode/engine': 1}": lambda it: it.seen.restarts.update({"encode/engine": 1}),
    "nothing was evicted for a watermark": lambda it: it.seen.deleted.update({"watermark": 0}),
    "the filler failed": lambda it: it.unwritten.update(["No space left on device"]),
    "no picture came from the store": lambda it: it.seen.engines.clear(),
    "the collector was not heard": lambda it: it.seen.looks.__setitem__(slice(None), it.seen.looks[28:33]),
}


@pytest.mark.parametrize("says", FAULTS)
def test_a_fault_is_named(says: str) -> None:
    found = soaked()
    FAULTS[says](found)
    assert [failure for failure in failures(found) if failure.startswith(says)] == failures(found) != []


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (soaked(peak=0.81), "usage reached 81.0 %, above 80.0 %"),
        (soaked(peak=0.7), "usage never reached 70 %"),
        (replace(soaked(), left=("a",)), "versions left: ('a',)"),
        (replace(soaked(), versions=("a",)), "the version never changed"),
        (replace(soaked(), untouched=False), "what is not the cache's was touched"),
    ],
)
def test_a_bound_that_was_not_kept_is_named(found: Soaked, says: str) -> None:
    assert failures(found) == [says]


def test_the_picture_shows_both_curves_on_light_and_dark_pages() -> None:
    root = ElementTree.fromstring(picture(soaked()))
    curves = root.findall(f"{SVG}polyline")
    assert [len(curve.attrib["points"].split()) for curve in curves] == [60, 60]
    labels = [text.text for text in root.findall(f"{SVG}text")]
    assert {"bound", "high watermark", "low watermark", "0 min"} <= set(labels)
    assert labels.count("version 2") == 2
    assert "prefers-color-scheme: dark" in (root.findtext(f"{SVG}style") or "")
    assert root.findtext(f"{SVG}title") == line(soaked())


def test_the_summary_ends_with_the_line_for_docs() -> None:
    told = summary(soaked())
    assert told.splitlines()[-1] == line(soaked())
    assert "deleted by cause                    watermark 590" in told
    assert "old one's directory gone after s    39" in told
