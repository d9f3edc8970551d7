from __future__ import annotations

from epd.proxy.server import RequestIds


def test_request_ids_are_the_clients_or_new() -> None:
    ids, others = RequestIds(), RequestIds()
    assert ids.given_or_new("r1:a.b_c-D") == "r1:a.b_c-D"
    given = [ids.given_or_new(bad) for bad in (None, "", "a b", "x" * 129, "ü", "a\n")] + [others.given_or_new(None)]
    assert len(set(given)) == 7
    assert {len(one) for one in given} == {32}


def test_no_id_is_given_twice() -> None:
    ids = RequestIds()
    given = [ids.given_or_new(None) for _ in range(10_000)]
    assert len(set(given)) == 10_000
    assert {len(one) for one in given} == {32}
    assert len({one[:16] for one in given}) == 1
    assert [int(one[16:], 16) for one in given] == list(range(10_000))
