from __future__ import annotations

from pathlib import Path

import pytest

from epd.api.reference import PATH, main, render

REPO = Path(__file__).parents[3]
TEXT = render()


def test_the_copy_in_the_repository_is_current() -> None:
    assert (REPO / PATH).read_text(encoding="utf-8") == TEXT


@pytest.mark.parametrize(
    "line",
    [
        "| `name` | string, required | The model's identity: its hub id, for example `Qwen/Qwen2.5-VL-3B-Instruct`, or "
        "what people call the weights on a claim. | new cache version, rolls all roles. |",
        "| `replicas` | integer ≥ 0, ≤ 1000 | Number of engines. Default: 1. Must be absent when scaling.mode is "
        "External. | adds or removes pods; none restarts. |",
        "| `limits` | map to quantity | Most that the container may use, by resource, for example `{nvidia.com/gpu: 1, "
        "memory: 64Gi}`. | rolls the role. |",
        "| `topology` | string | `E\\|PD` or `Aggregated`. |",
        "| `NameTaken` | An object of a child's name is there and not ours. Delete or rename one of the two. |",
        "`spec.prefillDecode` has the same fields.",
    ],
)
def test_lines(line: str) -> None:
    assert line in TEXT.splitlines()


def test_sections() -> None:
    sections = [line.removeprefix("## ").strip("`") for line in TEXT.splitlines() if line.startswith("## ")]

    assert sections[:3] == ["spec", "spec.model", "spec.model.mediaLimits"]
    assert sections[-4:] == ["status.encoderCache.lastCollection", "status.conditions[]", "Conditions", "Reasons"]
    assert len(sections) == len(set(sections))


def test_check_finds_what_differs(tmp_path: Path) -> None:
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert main(["--root", str(tmp_path)]) == 0
    assert main(["--check", "--root", str(tmp_path)]) == 0
