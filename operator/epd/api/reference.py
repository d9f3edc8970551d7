"""Generates the API reference, docs/api.md, from the CustomResourceDefinition's schema and the table of meanings.

`python -m epd.api.reference` writes it; `--check` writes nothing and fails if it differs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from epd.api import names
from epd.api.crd import generate, openapi_schema
from epd.api.meanings import CONDITIONS, REASONS
from epd.api.structural import Schema

PATH: Final = "docs/api.md"

_INTRO: Final = f"""<!-- Generated from operator/epd/api by `python -m epd.api.reference`; do not edit. -->

# API reference

`{names.API_VERSION}`, kind `{names.KIND}`, short name `{names.SHORT_NAME}`, namespaced. The cluster has the same text:
`kubectl explain {names.SHORT_NAME}.spec.encode`.

*Default* is what an absent field means. *Change* is what happens when you edit the field of a running deployment; a new
cache version also means that media are encoded anew. Durations are written as `90s`, `10m` or `1h30m`, quantities as
`500m`, `64Mi` or `100Gi`. A name has at most {names.NAME_MAX_LENGTH} characters.
"""

_SAME_SHAPE: Final = {"prefillDecode": "encode"}
"""Objects that are not printed twice: path -> the one that has the same fields."""


def render() -> str:
    """Return the reference as Markdown."""
    schema = openapi_schema()["properties"]
    parts = [_INTRO]
    for title in ("spec", "status"):
        parts += [_section(path, child) for path, child in _objects(title, schema[title])]
    parts.append(_table("Conditions", ("Type", "Meaning"), CONDITIONS.items()))
    parts.append(
        _table(
            "Reasons",
            ("Reason", "Meaning"),
            REASONS.items(),
            before="In `Ready` and in Events the reason of a part begins with the part, such as `EncodeImagePull`.",
        )
    )
    return "\n".join(parts)


def _objects(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Objects with fields of their own, outermost first."""
    yield path, schema
    for name, child in schema["properties"].items():
        if f"{path}.{name}".removeprefix("spec.") in _SAME_SHAPE:
            continue
        inner, suffix = (child["items"], "[]") if "items" in child else (child, "")
        if inner.get("properties"):
            yield from _objects(f"{path}.{name}{suffix}", inner)


def _section(path: str, schema: Schema) -> str:
    required = set(schema.get("required", ()))
    rows = [_row(name, child, required=name in required) for name, child in schema["properties"].items()]
    also = [f"`spec.{other}`" for other, same in _SAME_SHAPE.items() if path == f"spec.{same}"]
    lines = [f"## `{path}`", ""]
    if also:
        lines += [f"{' and '.join(also)} has the same fields.", ""]
    if path.startswith("spec"):
        lines += ["| Field | Type | Description | Change |", "| --- | --- | --- | --- |"]
    else:
        lines += ["| Field | Type | Description |", "| --- | --- | --- |"]
        rows = [row[:-1] for row in rows]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])


def _row(name: str, schema: Schema, *, required: bool) -> list[str]:
    description, _, change = schema.get("description", "").partition(" Change: ")
    return [f"`{name}`", _type(schema) + (", required" if required else ""), _cell(description), _cell(change)]


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity" if "Ki" in schema.get("pattern", "") else "integer or percentage"
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    if isinstance(values := schema.get("additionalProperties"), dict):
        return f"map to {_type(values)}"
    bounds = [f"{sign} {schema[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in schema]
    plain = str(schema.get("type", "any"))
    return f"{plain} {', '.join(bounds)}" if bounds and plain == "integer" else plain


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _table(title: str, head: tuple[str, str], rows: Iterable[tuple[str, str]], *, before: str = "") -> str:
    lines = [f"## {title}", ""] + ([before, ""] if before else [])
    lines += [f"| {head[0]} | {head[1]} |", "| --- | --- |"]
    lines += [f"| `{key}` | {_cell(text)} |" for key, text in rows]
    return "\n".join([*lines, ""])


def main(argv: Sequence[str] | None = None) -> int:
    """Write or compare the reference."""
    return generate({PATH: render()}, argv, description="Generate the API reference.")


if __name__ == "__main__":
    sys.exit(main())
