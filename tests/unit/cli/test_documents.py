from __future__ import annotations

import io
from pathlib import Path

import pytest

from epd.cli.documents import DocumentError, read
from unit.cli.manifests import GOOD, OTHER, write


def test_all_objects_of_a_file_and_no_others(tmp_path: Path) -> None:
    path = write(tmp_path, f"{GOOD}---\nkind: ScaledObject\n---\n---\n{OTHER}")
    found = [(epd.metadata.name, epd.metadata.namespace) for epd in read(path, namespace="mine")]
    assert found == [("a", "mine"), ("b", "ns")]


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(GOOD))
    assert [epd.metadata.name for epd in read("-")] == ["a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "expected the node content"),
        ("kind: Pod", "no object of kind EPDDeployment"),
        (GOOD.replace("{name: m}", "{}"), "spec.model.name: Field required"),
        (GOOD.replace("prefillDecode: {}", "encode: {}"), "spec: set prefillDecode"),
        (GOOD.replace("v0.33.0", "v0.20.2"), "vLLM 0.20.2 (read from the tag of spec.engine.image) is older than 0.28"),
        (GOOD.replace("prefillDecode: {}", "prefillDecode: {args: [--model, x]}"), "spec.prefillDecode.args[0]: "),
        (f"{GOOD.replace('v0.33.0', 'v0.30.0')}  encoderCache: {{}}", "older than 0.31, the first release that"),
    ],
)
def test_what_is_wrong_is_said(text: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(DocumentError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="No such file or directory"):
        read(str(tmp_path / "none"))
