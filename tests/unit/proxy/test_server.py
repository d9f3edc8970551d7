from __future__ import annotations

from epd.proxy.server import RequestIds


def test_request_ids_are_the_clients_or_new() -> None:
    ids, others = RequestIds(), RequestIds()
    assert ids.given_or_new("r1:a.b_c-D") == "r1:a.b_c-D"
    given = [ids.given_or_new(bad) for bad in (None, "", "a b", "x" * 129, "ü", "a\n")] + [others.given_or_new(None)]
    assert len(set(given)) == 7
    assert {len(one) for one in given} == {32}
