from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from chart.helm import CHART, Helm, named, the
from cluster import paths
from epd.api import names

pytestmark = pytest.mark.chart

FILE = f"{names.GROUP}_{names.PLURAL}.yaml"
SOURCE = paths.REPO / "crds" / FILE


def test_the_charts_copy_is_the_generated_one() -> None:
    assert (CHART / "files" / FILE).read_bytes() == SOURCE.read_bytes()


def test_helm_changes_only_labels_and_annotations(helm: Helm) -> None:
    rendered = the(helm.template(), "CustomResourceDefinition")
    generated = yaml.safe_load(SOURCE.read_text())
    meta = rendered["metadata"]
    assert meta["annotations"] == generated["metadata"].get("annotations", {}) | {"helm.sh/resource-policy": "keep"}
    assert meta["labels"].items() >= generated["metadata"].get("labels", {}).items()
    rendered["metadata"] = generated["metadata"]
    assert rendered == generated


def test_keep_is_a_switch(helm: Helm) -> None:
    crd = the(helm.template({"crds": {"keep": False}}), "CustomResourceDefinition")
    assert "helm.sh/resource-policy" not in crd["metadata"]["annotations"]


def test_enabled_is_a_switch(helm: Helm) -> None:
    assert named(helm.template({"crds": {"enabled": False}}), "CustomResourceDefinition") == []


def test_a_chart_without_its_crd_says_so(helm: Helm, tmp_path: Path) -> None:
    chart = tmp_path / "epd-operator"
    shutil.copytree(CHART, chart, ignore=shutil.ignore_patterns(FILE))
    said = replace(helm, chart=chart).refusal({"image": {"repository": "x"}})
    assert f"the chart is incomplete: files/{FILE} does not hold {names.PLURAL}.{names.GROUP}" in said


def test_annotations_and_labels_of_the_generator_survive(helm: Helm, tmp_path: Path) -> None:
    chart = tmp_path / "epd-operator"
    shutil.copytree(CHART, chart)
    crd = yaml.safe_load(SOURCE.read_text())
    crd["metadata"] |= {"annotations": {"example.com/a": "1"}, "labels": {"example.com/b": "2"}}
    (chart / "files" / FILE).write_text("# generated\n---\n" + yaml.safe_dump(crd))
    meta = the(replace(helm, chart=chart).template(), "CustomResourceDefinition")["metadata"]
    assert meta["annotations"] == {"example.com/a": "1", "helm.sh/resource-policy": "keep"}
    assert meta["labels"]["example.com/b"] == "2"
