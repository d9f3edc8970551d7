from __future__ import annotations

import re
import textwrap
from typing import Any

import pytest
import yaml

from chart.helm import Helm
from epd.api.types import EPDDeployment

pytestmark = pytest.mark.chart


def example(notes: str) -> dict[str, Any]:
    """The object that the notes show."""
    block = re.search(r"^ +apiVersion: epd.dev.*?(?=\n\n)", notes, re.DOTALL | re.MULTILINE)
    assert block
    return yaml.safe_load(textwrap.dedent(block[0]))


def test_the_example_is_a_deployment(helm: Helm) -> None:
    shown = EPDDeployment.model_validate(example(helm.notes()))
    assert shown.spec.encode is not None
    assert shown.spec.prefill_decode is not None


def test_they_say_which_namespaces_are_served(helm: Helm) -> None:
    assert "serves all namespaces." in helm.notes()
    assert "serves the namespaces team-a, team-b." in helm.notes({"watchNamespaces": ["team-a", "team-b"]})


def test_they_name_the_release_s_own_objects(helm: Helm) -> None:
    assert "kubectl -n epd-system rollout status deployment/my-epd" in helm.notes({"fullnameOverride": "my-epd"})


def test_they_warn_where_uninstalling_deletes_everything(helm: Helm) -> None:
    warning = "will delete every EPDDeployment in this cluster"
    assert warning not in helm.notes()
    assert warning in helm.notes({"crds": {"keep": False}})
    assert warning not in helm.notes({"crds": {"enabled": False, "keep": False}})


def test_they_fit_a_terminal(helm: Helm) -> None:
    assert [line for line in helm.notes().splitlines() if len(line) > 120] == []
