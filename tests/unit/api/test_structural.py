from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import pytest
from pydantic import Field

from epd.api.fields import ApiModel, IntOrPercent
from epd.api.structural import Schema, structural


class Colour(StrEnum):
    RED = "Red"
    GREEN = "Green"


class Inner(ApiModel):
    size: int = Field(3, ge=1)
    """How
    large."""
    free: dict[str, Any] = Field(default_factory=dict)


class Outer(ApiModel):
    always: Inner = Field(default_factory=Inner)
    maybe: Inner | None = None
    given: Inner
    colour: Colour = Colour.RED
    text: str = Field("", max_length=4)
    names: list[Annotated[str, Field(max_length=2)]] = Field(default_factory=list, max_length=5)
    surge: IntOrPercent | None = None
    switched: bool = False


def ignore(path: str, schema: Schema) -> None:
    pass


def inner(**more: Any) -> Schema:
    size = {"description": "How large. Default: 3.", "type": "integer", "minimum": 1}
    return {
        "type": "object",
        "properties": {
            "size": size | {"default": 3},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    } | more


def test_whole() -> None:
    assert structural(Outer, annotate=ignore) == {
        "type": "object",
        "required": ["given"],
        "properties": {
            "always": inner(default={}),
            "maybe": inner(),
            "given": inner(),
            "colour": {
                "description": "Default: Red.",
                "type": "string",
                "enum": ["Red", "Green"],
                "maxLength": 5,
                "default": "Red",
            },
            "text": {"type": "string", "maxLength": 4},
            "names": {
                "type": "array",
                "maxItems": 5,
                "items": {"type": "string", "maxLength": 2},
                "x-kubernetes-list-type": "atomic",
            },
            "surge": {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": "^(100|[1-9]?[0-9])%$",
                "maxLength": 4,
            },
            "switched": {"type": "boolean", "default": False},
        },
    }


def test_no_defaults_below_a_union_member() -> None:
    schema = structural(Outer, annotate=ignore, unions=["always"])

    assert "default" not in schema["properties"]["always"]
    assert schema["properties"]["always"]["properties"]["size"] == {
        "description": "How large. Default: 3.",
        "type": "integer",
        "minimum": 1,
    }
    assert schema["properties"]["maybe"]["properties"]["size"]["default"] == 3


def test_annotate_sees_every_path_and_may_change_it() -> None:
    seen = []

    def annotate(path: str, schema: Schema) -> None:
        seen.append(path)
        schema["description"] = path

    schema = structural(Outer, annotate=annotate)

    assert seen == [
        *("always.size", "always.free", "always", "maybe.size", "maybe.free", "maybe", "given.size", "given.free"),
        *("given", "colour", "text", "names[]", "names", "surge", "switched"),
    ]
    assert schema["properties"]["names"]["items"]["description"] == "names[]"


def test_other_unions_cannot_be_said() -> None:
    class Union(ApiModel):
        either: int | bool | None = None

    with pytest.raises(ValueError, match="a structural schema has no such union"):
        structural(Union, annotate=ignore)
