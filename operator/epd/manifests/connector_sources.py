"""The Managed connector's source as this release has it. Reads the package's own files, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Final

_PACKAGE: Final = "epd.connector"


@cache
def connector_sources() -> Mapping[str, str]:
    """Return file name -> text of each module of `epd.connector`, in the order of their names."""
    modules = [entry for entry in resources.files(_PACKAGE).iterdir() if entry.name.endswith(".py")]
    texts = {module.name: module.read_text(encoding="utf-8") for module in modules}
    return MappingProxyType(dict(sorted(texts.items())))
