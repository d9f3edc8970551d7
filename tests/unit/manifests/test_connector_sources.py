from __future__ import annotations

import ast
from importlib import resources
from typing import Final

from epd.manifests.connector_sources import connector_sources

CONFIG_MAP_LIMIT: Final = 1024 * 1024
"""Of all data of a ConfigMap (k8s.io/kubernetes pkg/apis/core/validation, `MaxSecretSize`)."""


def test_every_module_of_the_connector_and_nothing_else() -> None:
    found = connector_sources()
    files = {entry.name for entry in resources.files("epd.connector").iterdir() if entry.is_file()}
    assert set(found) == {name for name in files if name.endswith(".py")}
    assert {"__init__.py", "layout.py", "store.py"} <= set(found)
    assert list(found) == sorted(found)


def test_a_config_map_can_hold_it() -> None:
    assert sum(len(name) + len(text.encode()) for name, text in connector_sources().items()) < CONFIG_MAP_LIMIT


def test_it_is_importable_under_any_name() -> None:
    """In engines the package has another name than here: what is its own it imports relatively."""
    for name, text in connector_sources().items():
        modules = [node for node in ast.walk(ast.parse(text, name)) if isinstance(node, ast.Import | ast.ImportFrom)]
        absolute = [
            alias
            for node in modules
            for alias in ([node.module] if isinstance(node, ast.ImportFrom) and not node.level else [])
        ] + [alias.name for node in modules if isinstance(node, ast.Import) for alias in node.names]
        assert [module for module in absolute if (module or "").partition(".")[0] == "epd"] == [], name
