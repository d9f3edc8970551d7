"""What of the rules can be seen without a CEL evaluator; tests/apiserver/api has the rest."""

from __future__ import annotations

import pytest

from epd.api.owned import ALIASES, OWNED_ENV, OWNED_FLAGS, ROLE_FLAGS
from epd.api.rules import FIELD_RULES, ROOT_RULES, SPEC_RULES

ALL = [*ROOT_RULES, *SPEC_RULES, *(rule for rules in FIELD_RULES.values() for rule in rules)]


@pytest.mark.parametrize(
    ("path", "flags"),
    [("engine.args[]", OWNED_FLAGS), ("encode.args[]", ROLE_FLAGS), ("prefillDecode.args[]", ROLE_FLAGS)],
)
def test_flag_rules_hold_the_whole_table(path: str, flags: dict[str, str]) -> None:
    (rule,) = FIELD_RULES[path]

    for flag, reason in flags.items():
        assert f"'{flag}'" in rule.rule
        assert f"'{flag}': '{reason}'".replace("'s ", "\\'s ") in rule.message
    assert [alias for alias in ALIASES if f"'{alias}'" not in rule.rule or f"'{alias}': '" not in rule.message] == []


@pytest.mark.parametrize("path", ["engine.env[]", "encode.env[]", "prefillDecode.env[]"])
def test_variable_rules_hold_the_whole_table(path: str) -> None:
    rule = FIELD_RULES[path][0]

    assert [name for name in OWNED_ENV if f"'{name}'" not in rule.rule or f"'{name}': '" not in rule.message] == []


def test_no_regular_expressions_on_lists() -> None:
    """Their cost grows with text and pattern; only the name's rule, which is short, has one."""
    assert [rule for rule in ALL if "matches(" in rule.rule] == list(ROOT_RULES)


def test_brackets_are_closed() -> None:
    for rule in ALL:
        for opening, closing in ("()", "[]", "{}"):
            assert rule.rule.count(opening) == rule.rule.count(closing), rule
