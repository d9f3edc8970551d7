"""The shape of the project: what must hold whatever the modules do."""

from __future__ import annotations

import ast
import operator
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "operator").rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The absolute modules that a file imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


def test_the_source_root_does_not_shadow_the_operator_of_the_standard_library() -> None:
    assert Path(operator.__file__).is_relative_to(sysconfig.get_path("stdlib"))
    assert not (ROOT / "operator" / "__init__.py").exists()


@pytest.mark.parametrize("directory", [ROOT, ROOT / "operator"], ids=["repository root", "source root"])
def test_operator_is_the_standard_librarys_where_people_start_python(directory: Path) -> None:
    """`python -c` puts the working directory first on `sys.path`: there `operator/` could shadow the module."""
    code = "import operator, epd; print(operator.__file__); operator.itemgetter(0)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT / "operator")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(sysconfig.get_path("stdlib"))


def test_entry_points_exist() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) == {"epd-collector", "epd-operator", "epd-proxy", "kubectl-epd"}
    for target in scripts.values():
        module, _, function = target.partition(":")
        path = ROOT / "operator" / Path(*module.split(".")).with_suffix(".py")
        assert function in {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_kopf_is_imported_in_one_file() -> None:
    assert [p.name for p in SOURCES if any(n.split(".")[0] == "kopf" for n in imported(p))] == ["app.py"]


def test_the_operator_reaches_kubernetes_through_one_file() -> None:
    controller = [p for p in SOURCES if p.parent.name == "controller"]
    users = [p.name for p in controller if any(n.split(".")[0] == "kubernetes" for n in imported(p))]
    assert users == ["cluster.py"]


@pytest.mark.parametrize("name", ["runtime", "dev"])
def test_locked_requirements_have_hashes_and_name_no_host(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    pins = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert pins
    assert all("==" in line for line in pins)
    assert text.count("--hash=sha256:") >= len(pins)
    assert "://" not in text


def test_what_is_compiled_is_there() -> None:
    """The build hook leaves out in silence what it does not find."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]["include"]
    assert [name for name in included if not (ROOT / name).is_file()] == []
    assert len(included) == len(set(included)) > 0
