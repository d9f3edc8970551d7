"""From pydantic's JSON schema to a structural schema, as a CustomResourceDefinition must have it.

Generic: inlines references, drops what structural schemas may not have, decides which defaults are written. Knows no
field of the API; paths are handed to a callback for descriptions and rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pydantic import BaseModel

Schema = dict[str, Any]
Annotate = Callable[[str, Schema], None]
"""Called with the path of every field (`[]` for list items) and its finished schema, which it may change."""

_SCALARS: Final = (str, int, bool)
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"


def structural(model: type[BaseModel], *, annotate: Annotate) -> Schema:
    """Return the structural schema of `model`.

    Defaults are written only for scalars whose parents are always there. A default inside an optional object would
    outlive its object: after a server-side apply without it the defaulted fields, which no one owns, would stay and
    keep it. A default of a whole object would be merged into what the user gives later. Such defaults are computed
    from the same models when the operator reads the object, and named in the description.
    """
    source = model.model_json_schema(by_alias=True, mode="validation")
    return _Converter(source.get("$defs", {}), annotate).convert(source, path="", always=True)


class _Converter:
    def __init__(self, definitions: Schema, annotate: Annotate) -> None:
        self._definitions = definitions
        self._annotate = annotate

    def convert(self, source: Schema, *, path: str, always: bool) -> Schema:
        source, optional = self._resolve(source)
        always = always and not optional
        schema = {key: value for key, value in source.items() if key not in ("title", "$defs", "default", "properties")}
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].split())
        if schema.get("additionalProperties") is True:
            del schema["additionalProperties"]
            schema[_PRESERVE] = True
        if isinstance(default := source.get("default"), _SCALARS) and default != "":
            description = schema.get("description", "")
            if default is not False and "Default:" not in description:
                schema["description"] = (
                    f"{description} Default: {str(default).lower() if default is True else default}."
                )
            if always:
                schema["default"] = default
        if "enum" in schema and schema.get("type") == "string":
            schema["maxLength"] = max(map(len, schema["enum"]))
        if "items" in schema:
            schema["items"] = self.convert(source["items"], path=f"{path}[]", always=False)
            schema.setdefault("x-kubernetes-list-type", "atomic")
        if "properties" in source:
            self._properties(schema, source, path=path, always=always)
        if path:
            self._annotate(path, schema)
        return _ordered(schema)

    def _properties(self, schema: Schema, source: Schema, *, path: str, always: bool) -> None:
        required = source.get("required", [])
        schema["properties"] = {
            name: self.convert(child, path=f"{path}.{name}" if path else name, always=always)
            for name, child in source["properties"].items()
        }
        for name, child in schema["properties"].items():
            if always and name not in required and any("default" in grandchild for grandchild in _children(child)):
                child["default"] = {}

    def _resolve(self, source: Schema) -> tuple[Schema, bool]:
        """Inline a reference and `X | None`; say whether the field may be absent altogether."""
        optional = False
        if "anyOf" in source and not source.get("x-kubernetes-int-or-string"):
            members = [member for member in source["anyOf"] if member.get("type") != "null"]
            if len(members) != 1:
                raise ValueError(f"a structural schema has no such union: {source}")
            optional = len(members) < len(source["anyOf"])
            source = members[0] | {key: value for key, value in source.items() if key != "anyOf"}
        if "$ref" in source:
            name = source["$ref"].removeprefix("#/$defs/")
            resolved, nested = self._resolve(self._definitions[name])
            source = resolved | {key: value for key, value in source.items() if key != "$ref"}
            optional = optional or nested
        return source, optional


def _children(schema: Schema) -> list[Schema]:
    return list(schema.get("properties", {}).values())


_FIRST: Final = ("description", "type", "format", "default")


def _ordered(schema: Schema) -> Schema:
    """Keys in a fixed order for people: what it is, its bounds, then what it contains."""
    keys = [key for key in _FIRST if key in schema] + sorted(key for key in schema if key not in _FIRST)
    return {key: schema[key] for key in sorted(keys, key=lambda key: key in ("properties", "items"))}
