"""EPDDeployments in YAML files: reading and checking them. Never talks to a cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from epd.api import names
from epd.api.types import EPDDeployment
from epd.api.validation import problems
from epd.topology.engine_version import engine_version, unsupported
from epd.topology.roles import topology_of

STDIN = "-"


class DocumentError(Exception):
    """The file can't be used; the message says why, for a person."""


def lines(error: ValidationError) -> list[str]:
    """Return what is wrong with an object, one field a line."""
    return [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]


def _documents(path: str) -> Iterator[Any]:
    try:
        text = sys.stdin.read() if path == STDIN else Path(path).read_text()
    except OSError as error:
        raise DocumentError(f"{path}: {error.strerror}") from None
    try:
        yield from yaml.safe_load_all(text)
    except yaml.YAMLError as error:
        raise DocumentError(f"{path}: {error}") from None


def _parse(path: str, document: dict[str, Any], namespace: str) -> EPDDeployment:
    metadata = document.get("metadata") or {}
    try:
        epd = EPDDeployment.model_validate(document | {"metadata": {"namespace": namespace} | metadata})
        topology_of(epd.spec)
    except ValidationError as error:
        raise DocumentError("\n".join(f"{path}: {line}" for line in lines(error))) from None
    except ValueError as error:
        raise DocumentError(f"{path}: {error}") from None
    messages = [f"{problem.path}: {problem.message}" for problem in problems(epd)]
    if message := unsupported(engine_version(epd.spec.engine), cache=epd.spec.encoder_cache):
        messages.append(message)
    if messages:
        raise DocumentError("\n".join(f"{path}: {message}" for message in messages))
    return epd


def read(path: str, *, namespace: str = "default") -> list[EPDDeployment]:
    """Return the EPDDeployments in a YAML file (`-`: standard input); `namespace` is for those that name none.

    Raises:
        DocumentError: the file can't be read, holds no EPDDeployment, or holds one that can't be run.
    """
    found = [
        _parse(path, document, namespace)
        for document in _documents(path)
        if isinstance(document, dict) and document.get("kind") == names.KIND
    ]
    if not found:
        raise DocumentError(f"{path}: no object of kind {names.KIND}")
    return found
