from pathlib import Path
from typing import Any

import gates
import pytest
from gates import Gate, Verdict, check, read_gates
from results import Run, Spread
from scenarios import SCENARIOS
from stacks import STACKS

FILE = Path(gates.__file__).with_name("gates.toml")


def gate(**fields: Any) -> Gate:
    given = {"name": "g", "scenario": "s", "measure": "cpu", "of": "ours", "calibrated": "by hand"} | fields
    return Gate(**given)


def run(stack: str, value: float, *, scenario: str = "s", measure: str = "cpu", number: int = 0) -> Run:
    return Run(scenario=scenario, stack=stack, round=number, figures={measure: value})


@pytest.mark.parametrize(("value", "word"), [(2.0, "reached, stretch too"), (3.0, "reached"), (3.01, "MISSED")])
def test_an_upper_limit(value: float, word: str) -> None:
    found = check([gate(over="relay", most=3, stretch=2)], [run("ours", 10 * value), run("relay", 10)], {})
    assert [verdict.word for verdict in found] == [word]
    assert found[0].reached is (word != "MISSED")


@pytest.mark.parametrize(("value", "word"), [(20, "reached, stretch too"), (12, "reached"), (11.9, "MISSED")])
def test_a_lower_limit(value: float, word: str) -> None:
    wanted = gate(of="upstream", over="ours", least=12, stretch=20)
    assert check([wanted], [run("upstream", value), run("ours", 1)], {})[0].word == word


def test_a_figure_without_a_ratio_is_judged_by_its_median() -> None:
    values = [run("ours", value, number=number) for number, value in enumerate((1, 9, 2))]
    assert check([gate(most=2, stretch=0)], values, {}) == [
        Verdict(gate=gate(most=2, stretch=0), found=Spread((1, 9, 2)))
    ]


def test_a_sum_over_all_scenarios() -> None:
    wanted = gate(scenario="*", measure="errors", most=0, stretch=0)
    clean = [run("ours", 0, measure="errors"), run("relay", 3, measure="errors")]
    assert check([wanted], clean, {})[0].reached
    assert not check([wanted], [*clean, run("ours", 1, scenario="t", measure="errors")], {})[0].reached


def test_a_gate_without_figures_is_not_reached_and_says_why() -> None:
    wanted = gate(of="upstream", over="ours", least=12, stretch=20)
    (verdict,) = check([wanted], [run("ours", 1)], {"upstream": "uv is not installed", "other": "no matter"})
    assert (verdict.reached, verdict.word) == (False, "NOT MEASURED")
    assert verdict.missing == "upstream: uv is not installed"
    assert check([gate(most=1, stretch=1)], [], {})[0].missing == "no figures"


def test_the_table_names_every_gate() -> None:
    text = gates.table(check([gate(most=3, stretch=2), gate(name="h", most=1, stretch=1)], [run("ours", 2.5)], {}))
    assert text.splitlines()[2:] == [
        "| g | <= 3 (2) | 2.5 [2.5..2.5] | reached |",
        "| h | <= 1 (1) | 2.5 [2.5..2.5] | MISSED |",
    ]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("most = 3\nleast = 2\nstretch = 3", "one of most and least"),
        ("stretch = 3", "one of most and least"),
        ("most = 3\nstretch = 4", "wider"),
        ("least = 3\nstretch = 2", "wider"),
        ("most = 3\nstretch = 2\nlimit = 1", "limit"),
    ],
)
def test_a_gate_that_makes_no_sense_is_refused(tmp_path: Path, wrong: str, says: str) -> None:
    file = tmp_path / "gates.toml"
    fixed = 'name = "g"\nscenario = "s"\nmeasure = "cpu"\nof = "ours"\ncalibrated = "by hand"'
    file.write_text(f"[[gate]]\n{fixed}\n{wrong}\n")
    with pytest.raises(ValueError, match=says):
        read_gates(file)


def test_the_range_file_speaks_of_scenarios_and_stacks_that_there_are() -> None:
    found = read_gates(FILE)
    assert {each.scenario for each in found} <= {scenario.name for scenario in SCENARIOS} | {gates.ANY}
    assert {each.of for each in found} | {each.over for each in found} <= {*STACKS, ""}
    assert len({each.name for each in found}) == len(found)


def test_quick_gates_are_three_and_need_no_peer() -> None:
    quick = [each for each in read_gates(FILE) if each.quick]
    assert len(quick) == 3
    assert {each.of for each in quick} | {each.over for each in quick} == {"epd-proxy", "relay", ""}
