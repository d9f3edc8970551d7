from __future__ import annotations

import json

from epd.proxy import hints as module
from epd.proxy.hints import Hint, Hints, hint_keys
from epd.proxy.media import MediaPolicy
from epd.proxy.parsed import ParsedRequest
from epd.proxy.requests import parse_chat
from epd.proxy.rewrite import Reported

REPORTED = Reported(identifier="k", metadata={"image_grid_thw": [1, 8, 8]})


def request(*urls: str, **fields: object) -> ParsedRequest:
    content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    body = {"model": "m", "messages": [{"role": "user", "content": content}]} | fields
    return parse_chat(json.dumps(body).encode(), policy=MediaPolicy(allowed_domains=frozenset({"*"})))


def key(pairing: str = "p", **fields: object) -> str:
    [found] = hint_keys(pairing, request("data:image/png;base64,AAAA", **fields)).values()
    return found


def test_a_hint_is_good_for_its_time() -> None:
    now = [100.0]
    hints = Hints(seconds=60, clock=lambda: now[0])
    assert hints.find("a") is None
    hints.note("a", encoder="e0", reported=REPORTED)
    now[0] += 59
    assert hints.find("a") == Hint("e0", REPORTED, 160.0)
    hints.note("b", encoder="e1", reported=REPORTED)
    now[0] += 1
    assert (hints.find("a"), len(hints)) == (None, 1)
    hints.note("b", encoder="e2", reported=REPORTED)
    now[0] += 59
    assert hints.find("b") == Hint("e2", REPORTED, 220.0)
    hints.drop("b")
    hints.drop("never noted")
    assert len(hints) == 0


def test_the_oldest_makes_room() -> None:
    hints = Hints(seconds=60)
    for number in range(module.HINTS_LIMIT):
        hints.note(str(number), encoder="e", reported=REPORTED)
    # seen again, so the second is the oldest now
    hints.note("0", encoder="e", reported=REPORTED)
    hints.note("new", encoder="e", reported=REPORTED)
    assert len(hints) == module.HINTS_LIMIT
    assert [hints.find(name) is not None for name in ("0", "1", "2", "new")] == [True, False, True, True]


def test_keys_tell_apart_what_encoders_would_encode_differently() -> None:
    keys = {
        key(),
        key("q"),
        key(model="adapter"),
        key(mm_processor_kwargs={"min_pixels": 1}),
        key(media_io_kwargs={"video": {"num_frames": 1}}),
        *hint_keys("p", request("data:image/png;base64,BBBB")).values(),
        *hint_keys("p", request("data:image/jpeg;base64,AAAA")).values(),
    }
    assert len(keys) == 7


def test_keys_are_equal_where_the_result_is() -> None:
    options = {"mm_processor_kwargs": {"a": 1, "b": 2}}
    assert key(priority=1, session_id="s", temperature=1) == key()
    assert key(mm_processor_kwargs={"b": 2, "a": 1}) == key(**options)


def test_a_url_says_nothing_of_its_content() -> None:
    asked = request("https://example.com/a.png", "data:image/png;base64,AAAA")
    assert list(hint_keys("p", asked)) == [asked.items[1].key]
