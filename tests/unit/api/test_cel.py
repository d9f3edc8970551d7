from __future__ import annotations

from epd.api.cel import Rule, literal


def test_schema_of_a_rule() -> None:
    assert Rule("self > 0", "must be more").schema() == {"rule": "self > 0", "message": "must be more"}
    assert Rule("self > 0", "='is ' + self").schema() == {"rule": "self > 0", "messageExpression": "'is ' + self"}


def test_what_ends_a_string_is_escaped() -> None:
    assert literal("it's \\d") == "'it\\'s \\\\d'"
