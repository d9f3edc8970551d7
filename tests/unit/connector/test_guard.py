from __future__ import annotations

import inspect
import logging

from epd.connector.guard import guarded


class Hooks:
    def __init__(self) -> None:
        self.raised: dict[str, int] = {}

    @guarded((False, None))
    def finished(self, request: str, **kwargs: int) -> tuple[bool, str | None]:
        """Say it."""
        if not request:
            raise ZeroDivisionError
        return True, f"{request}{kwargs}"


def test_what_returns_is_returned():
    hooks = Hooks()
    assert hooks.finished(request="a", more=1) == (True, "a{'more': 1}")
    assert hooks.raised == {}


def test_what_raises_returns_something_else_and_is_counted_and_logged_ever_less(caplog):
    hooks = Hooks()
    with caplog.at_level(logging.ERROR):
        assert {hooks.finished("") for _ in range(9)} == {(False, None)}
    assert hooks.raised == {"finished": 9}
    assert [record.args for record in caplog.records] == [("finished", count) for count in (1, 2, 4, 8)]


def test_the_signature_stays():
    assert list(inspect.signature(Hooks.finished).parameters) == ["self", "request", "kwargs"]
    assert Hooks.finished.__doc__ == "Say it."
