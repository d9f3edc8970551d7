from __future__ import annotations

import pytest

from epd.proxy.primed import NOTHING, SHOWN_BYTES, SHOWN_IDENTIFIERS, Primed
from epd.proxy.primers import Encoded, EncodeFailure
from epd.proxy.rewrite import Reported
from unit.proxy.engines import arrival


def reported(*identifiers: str) -> Primed:
    return Primed.of(
        [Encoded(encoder="e0", reported={str(n): Reported(identifier=i) for n, i in enumerate(identifiers)})]
    )


def test_results_are_put_together() -> None:
    a, b = Reported(identifier="a"), Reported(identifier="b")
    broke, refused = EncodeFailure(reason="disconnected"), EncodeFailure(reason="status", status=400)
    primed = Primed.of(
        [
            Encoded(encoder="e1", reported={"1": a}, announced={"a": 1}),
            broke,
            Encoded(encoder="e0", reported={"2": b}, announced={"b": 2}),
            refused,
            Encoded(encoder="e1", reported={"3": a}),
        ]
    )
    assert primed == Primed(("e1", "e0"), {"1": a, "2": b, "3": a}, {"a": 1, "b": 2}, refused)
    assert primed.headers() == {"x-epd-encoders": "e1,e0", "x-epd-items": "a,b"}
    assert (Primed.of([]), NOTHING.headers()) == (NOTHING, {})


def test_only_what_was_announced_is_told() -> None:
    request = arrival("AAAA")
    assert NOTHING.told(request) is request
    told = Primed(announced={"a": 1}).told(request)
    assert told.request.body == request.request.with_fields({"ec_transfer_params": {"a": 1}}).body


@pytest.mark.parametrize(
    ("identifiers", "shown"),
    [
        ([], None),
        (["", "a", "a"], "a"),
        # nothing that ends a line, can't be encoded, or is not ASCII
        (["a\r\nx: y", "b\n", "\ud800", "\x7f", "\xe9", "<lora>:c"], "<lora>:c"),
        ([f"{n:064x}" for n in range(200)], ",".join(f"{n:064x}" for n in range(SHOWN_IDENTIFIERS))),
        (["a" * SHOWN_BYTES], "a" * SHOWN_BYTES),
        (["a" * (SHOWN_BYTES + 1)], None),
        (["a", "b" * (SHOWN_BYTES - 2)], "a," + "b" * (SHOWN_BYTES - 2)),
        (["a", "b" * (SHOWN_BYTES - 1)], "a"),
    ],
)
def test_headers_have_room_for_what_is_shown(identifiers: list[str], shown: str | None) -> None:
    assert reported(*identifiers).headers().get("x-epd-items") == shown
