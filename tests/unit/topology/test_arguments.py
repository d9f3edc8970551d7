from __future__ import annotations

import pytest

from epd.topology.arguments import Argument, last_value, parse


@pytest.mark.parametrize(
    ("args", "arguments"),
    [
        ([], ()),
        (["--a", "b"], (Argument("--a", ("b",)),)),
        (["--a=b"], (Argument("--a", ("b",)),)),
        (["--a_b=c_d"], (Argument("--a-b", ("c_d",)),)),
        (["--a-b", "--c"], (Argument("--a-b"), Argument("--c"))),
        (["--json_arg.key_one", "v"], (Argument("--json-arg.key_one", ("v",)),)),
        (["--a", "-1"], (Argument("--a", ("-1",)),)),
        (["--a", "-.5"], (Argument("--a", ("-.5",)),)),
        (["--a=--b"], (Argument("--a", ("--b",)),)),
        (["-tp", "2"], (Argument("-tp", ("2",)),)),
        (["--modules", "a=1", "b=2"], (Argument("--modules", ("a=1", "b=2")),)),
        (["stray", "--a"], (Argument("", ("stray",)), Argument("--a"))),
        (["--a", '{"y": 1,  "x": [2]}'], (Argument("--a", ('{"x":[2],"y":1}',)),)),
        (['--a={"y": 1}'], (Argument("--a", ('{"y":1}',)),)),
        (["--a", "{no json"], (Argument("--a", ("{no json",)),)),
    ],
)
def test_every_spelling_is_one(args: list[str], arguments: tuple[Argument, ...]) -> None:
    assert parse(args) == arguments


@pytest.mark.parametrize(
    ("flag", "option"),
    [
        ("--enable-lora", "--enable-lora"),
        ("--no-enable-lora", "--enable-lora"),
        ("--json-arg.key", "--json-arg"),
        ("-tp", "-tp"),
        ("", ""),
    ],
)
def test_option(flag: str, option: str) -> None:
    assert Argument(flag).option == option


def test_the_last_value_counts() -> None:
    assert last_value(["--a", "1", "--b=2", "--a=3"], "--a") == "3"
    assert last_value(["--a"], "--a") is None
    assert last_value([], "--a") is None
