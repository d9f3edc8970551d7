import pytest
from soak import Story, growth, verdicts


def line(**fields: object) -> dict[str, object]:
    return {"answered": 0, "vanished": 0, "versions": None, "troubles": None} | fields


def test_lines_add_up() -> None:
    story = Story()
    story.take(line(answered=3, versions={"v1": 3}))
    story.take(line(answered=2, vanished=1, versions={"v1": 1, "v2": 1}))
    story.take(line(troubles=[{"time": 5.0, "how": "lost", "text": "no answer"}]))
    assert (story.answered, story.vanished, story.versions) == (5, 1, {"v1": 4, "v2": 1})
    assert story.troubles == [(5.0, "lost", "no answer")]


@pytest.mark.parametrize(
    ("how", "moment", "explained"),
    [
        ("broken off", 101.0, True),
        ("broken off", 99.9, False),
        ("broken off", 110.0, False),
        ("wrong", 101.0, False),
        ("lost", 101.0, False),
        ("refused", 101.0, False),
    ],
)
def test_only_a_stream_that_broke_off_with_its_engine_is_explained(how: str, moment: float, explained: bool) -> None:
    story = Story(deaths=[50.0, 100.0], troubles=[(moment, how, "")])
    assert (story.unexplained() == []) is explained


@pytest.mark.parametrize(
    ("samples", "grown"),
    [
        ([], 0),
        ([40, 50, 60], 0),
        ([40, 40, 50, 50, 51, 51, 51, 51], 1),  # the first quarter is a warm-up
        ([50, 50, 50, 50, 60, 60, 60, 60], 10),
        ([50, 50, 50, 50, 50, 50, 50, 900], 0),  # a peak is no growth
    ],
)
def test_growth(samples: list[float], grown: float) -> None:
    assert growth(samples) == grown


def story(**fields: object) -> Story:
    good = Story(answered=9, memory=[50.0] * 8, sockets=[30], deaths=[1.0])
    good.versions.update(["v1", "v2"])
    for name, value in fields.items():
        setattr(good, name, value)
    return good


def failed(told: Story, *, before: int = 6, after: int = 6) -> list[int]:
    return [number for number, (good, _) in enumerate(verdicts(told, before, after)) if not good]


def test_a_good_story_holds() -> None:
    assert failed(story()) == []


def test_each_kind_of_harm_fails_its_own_verdict() -> None:
    assert failed(story(answered=0)) == [0]
    assert failed(story(troubles=[(1.0, "wrong", "other")])) == [1]
    assert failed(story(memory=[50.0, 50, 50, 50, 90, 90, 90, 90])) == [3]
    assert failed(story(), after=11) == [4]
    assert failed(story(versions={"v1": 3})) == [5]
