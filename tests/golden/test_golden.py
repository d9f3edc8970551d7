"""The manifests of every example are as they were reviewed. To accept a change, see `update.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from golden.render import EXAMPLES, GOLDEN, examples, rendered


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.stem)
def test_rendered_as_reviewed(example: Path) -> None:
    assert rendered(example) == (GOLDEN / example.name).read_text()


def test_each_golden_file_has_its_example() -> None:
    assert {path.name for path in GOLDEN.glob("*.yaml")} == {path.name for path in EXAMPLES.glob("*.yaml")}


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.stem)
def test_an_example_says_what_it_shows(example: Path) -> None:
    text = example.read_text()
    assert re.fullmatch(r"[0-9]{2}-[a-z0-9-]+\.yaml", example.name)
    assert text.startswith("# ")
    for document in yaml.safe_load_all(text):
        if document["kind"] == "EPDDeployment" and "source" not in document["spec"]["model"]:
            assert re.fullmatch(r"[0-9a-f]{40}", document["spec"]["model"]["revision"])
