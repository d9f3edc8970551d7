"""Where connector and collector call the file system, read from their sources: what histories must crash at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import epd
from histories.memory_fs import Files
from histories.process import Site

PACKAGE = Path(epd.__path__[0])
MODULES = (
    *(f"connector/{name}.py" for name in ("pins", "reading", "records", "store", "writing")),
    *sorted(f"collector/{path.name}" for path in (PACKAGE / "collector").glob("*.py")),
)
_CALLS = frozenset(name for name in dir(Files) if not name.startswith("_"))


def call_sites(modules: tuple[str, ...] = MODULES) -> frozenset[Site]:
    """Return (module, function, call) of all uses of the seam."""
    return frozenset(
        (module, function, call)
        for module in modules
        for function, call in _uses(ast.parse((PACKAGE / module).read_text()), ())
    )


def _uses(node: ast.AST, inside: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        name = getattr(child, "name", "")
        if isinstance(child, ast.ClassDef | ast.FunctionDef):
            yield from _uses(child, (*inside, name))
            continue
        if isinstance(child, ast.Attribute) and child.attr in _CALLS and _is_seam(child.value):
            yield ".".join(inside), child.attr
        yield from _uses(child, inside)


def _is_seam(node: ast.AST) -> bool:
    """Tell whether an expression is `files`, or ends in `.files` or `._files`."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name.lstrip("_") == "files"
