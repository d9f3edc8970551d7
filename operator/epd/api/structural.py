"""From pydantic's JSON schema to a structural schema, as a CustomResourceDefinition must have it.

Generic: inlines references, drops what structural schemas may not have, decides which defaults are written. Knows no
field of the API; paths are handed to a callback for descriptions and rules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from pydantic import BaseModel

Schema = dict[str, Any]
Annotate = Callable[[str, Schema], None]
"""Called with the path of every field (`[]` for list items) and its finished schema, which it may change."""

_SCALARS: Final = (str, int, bool)
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"


def structural(model: type[BaseModel], *, annotate: Annotate, unions: Collection[str] = ()) -> Schema:
    """Return the structural schema of `model`.

    Defaults are written for scalars, except below the paths in `unions`: a member's defaults must not speak for it
    while the user switches to another. A whole object is never a default: it would be merged into what the user gives
    later (kube-apiserver 1.35: `kubectl apply` of `{runAsNonRoot: true}` over a defaulted securityContext leaves the
    default's uid). Such defaults are computed from the same models when the operator reads the object. Either way the
    description names the default.
    """
    source = model.model_json_schema(by_alias=True, mode="validation")
    return _Converter(source.get("$defs", {}), annotate, frozenset(unions)).convert(source, path="", defaults=True)


class _Converter:
    def __init__(self, definitions: Schema, annotate: Annotate, unions: frozenset[str]) -> None:
        self._definitions = definitions
        self._annotate = annotate
        self._unions = unions

    def convert(self, source: Schema, *, path: str, defaults: bool) -> Schema:
        source = self._resolve(source)
        defaults = defaults and path not in self._unions
        schema = {key: value for key, value in source.items() if key not in ("title", "$defs", "default", "properties")}
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].split())
        if schema.get("additionalProperties") is True:
            del schema["additionalProperties"]
            schema[_PRESERVE] = True
        if isinstance(default := source.get("default"), _SCALARS) and default != "":
            _describe_default(schema, default)
            if defaults:
                schema["default"] = default
        if "enum" in schema and schema.get("type") == "string":
            schema["maxLength"] = max(map(len, schema["enum"]))
        if "items" in schema:
            schema["items"] = self.convert(source["items"], path=f"{path}[]", defaults=False)
            schema.setdefault("x-kubernetes-list-type", "atomic")
        if "properties" in source:
            schema["properties"] = self._properties(source, path=path, defaults=defaults)
        if path:
            self._annotate(path, schema)
        return _ordered(schema)

    def _properties(self, source: Schema, *, path: str, defaults: bool) -> Schema:
        """Fields of an object. One that is always there is written too, empty, so that its own defaults are."""
        required = source.get("required", [])
        properties = {}
        for name, field in source["properties"].items():
            child = self.convert(field, path=f"{path}.{name}" if path else name, defaults=defaults)
            always = name not in required and not _is_optional(field)
            if defaults and always and any("default" in inner for inner in child.get("properties", {}).values()):
                child["default"] = {}
            properties[name] = child
        return properties

    def _resolve(self, source: Schema) -> Schema:
        """Inline a reference and `X | None`."""
        if "anyOf" in source and not source.get("x-kubernetes-int-or-string"):
            members = [member for member in source["anyOf"] if member.get("type") != "null"]
            if len(members) != 1:
                raise ValueError(f"a structural schema has no such union: {source}")
            source = members[0] | {key: value for key, value in source.items() if key != "anyOf"}
        if "$ref" in source:
            resolved = self._resolve(self._definitions[source["$ref"].removeprefix("#/$defs/")])
            source = resolved | {key: value for key, value in source.items() if key != "$ref"}
        return source


def _is_optional(source: Schema) -> bool:
    return any(member.get("type") == "null" for member in source.get("anyOf", ()))


def _describe_default(schema: Schema, default: str | int | bool) -> None:
    description = schema.get("description", "")
    if default is not False and "Default:" not in description:
        schema["description"] = f"{description} Default: {'true' if default is True else default}.".strip()


_FIRST: Final = ("description", "type", "format", "default")


def _ordered(schema: Schema) -> Schema:
    """Keys in a fixed order for people: what it is, its bounds, then what it contains."""
    keys = [key for key in _FIRST if key in schema] + sorted(key for key in schema if key not in _FIRST)
    return {key: schema[key] for key in sorted(keys, key=lambda key: key in ("properties", "items"))}
