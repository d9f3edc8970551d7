import pytest
from results import Run, Spread, paired, short, spread, table, total


def runs(scenario: str, stack: str, *values: float, measure: str = "cpu") -> list[Run]:
    return [
        Run(scenario=scenario, stack=stack, round=number, figures={measure: value})
        for number, value in enumerate(values)
    ]


def test_ratios_are_taken_within_rounds_before_their_median() -> None:
    found = paired(runs("s", "a", 30, 2, 8) + runs("s", "b", 10, 1, 2), "s", "cpu", of="a", over="b")
    assert found == Spread((3, 2, 4))
    assert found is not None
    assert found.median == 3  # the ratio of the medians is 4


def test_a_round_that_one_of_both_lacks_has_no_ratio() -> None:
    one = runs("s", "a", 6, 9)
    other = [Run(scenario="s", stack="b", round=1, figures={"cpu": 3})]
    assert paired(one + other, "s", "cpu", of="a", over="b") == Spread((3,))
    assert paired(one, "s", "cpu", of="a", over="b") is None


def test_nothing_is_divided_by_nothing() -> None:
    assert paired(runs("s", "a", 1) + runs("s", "b", 0), "s", "cpu", of="a", over="b") is None


def test_other_scenarios_and_measures_are_left_out() -> None:
    mixed = runs("s", "a", 1) + runs("t", "a", 5) + runs("s", "a", 7, measure="p99")
    assert spread(mixed, "s", "a", "cpu") == Spread((1,))
    assert spread(mixed, "s", "b", "cpu") is None


def test_a_total_is_over_all_scenarios() -> None:
    assert total(runs("s", "a", 1, 2, measure="errors") + runs("t", "a", 4, measure="errors"), "a", "errors") == 7


def test_a_spread_says_median_and_range() -> None:
    assert str(Spread((0.00123, 2.345, 1234.5))) == "2.35 [0.00123..1234]"


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (0.123456, "0.123"), (99.94, "99.9"), (100.4, "100")])
def test_three_digits(value: float, text: str) -> None:
    assert short(value) == text


def test_a_table_has_the_columns_that_someone_has_and_the_stacks_that_ran() -> None:
    text = table(runs("s", "ours", 30, 40) + runs("s", "relay", 10, 10), "s", ["relay", "ours", "absent"], "relay")
    assert text.splitlines() == [
        "| stack | CPU us/request | CPU over relay | errors |",
        "| --- | ---: | ---: | ---: |",
        "| relay | 10 | 1 [1..1] | 0 |",
        "| ours | 35 | 3.5 [3..4] | 0 |",
    ]
