"""The structs that answers are made of, and their JSON Schema for ``/openapi.json``.

A handler builds one of them and msgspec encodes it; its schema is made of the same class, so the
description cannot differ from the answer. Bodies of requests are pydantic models instead: they
report the field that is wrong (``schemas.py``).
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import types
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import UnsetType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    JsonSchema = Mapping[str, object]

REFERENCE = "#/components/schemas/{model}"
_TYPE_NAMES = {
    str: "string",
    bytes: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    types.NoneType: "null",
}


class AnswerBody(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Base of JSON answers: a field with a default value is left out while it has that value."""


class PartitionAnswer(AnswerBody):
    """Base of answers about one partition."""

    topic: str
    partition: int


A = TypeVar("A", bound=AnswerBody)


def answer_of(kind: type[A], /, *sources: object, **fields: object) -> A:
    """An answer with the values that are called as its fields: the given ones, else attributes.

    Of several sources the first one that has the attribute counts.
    """
    for name in kind.__struct_fields__:
        if name not in fields:
            owner = next((each for each in sources if hasattr(each, name)), None)
            if owner is not None:
                fields[name] = getattr(owner, name)
    return kind(**fields)


@dataclasses.dataclass(frozen=True, slots=True)
class NamedType:
    """A component that is not an object: an array, one of several objects, a schema spelt out."""

    name: str
    type: object | JsonSchema
    description: str


class Components:
    """The named schemas that some answers need, with those that these name themselves."""

    def __init__(self) -> None:
        self.schemas: dict[str, JsonSchema] = {}
        self._models: dict[str, object] = {}  # which class has the name

    def add(self, model: type | NamedType) -> JsonSchema:
        """Include a model; the reference to it."""
        name = model.name if isinstance(model, NamedType) else model.__name__
        if name not in self._models:
            self._models[name] = model
            self.schemas[name] = self._named(model)
        assert self._models[name] is model, f"two models are called {name}"
        return {"$ref": REFERENCE.format(model=name)}

    def _named(self, model: type[Any] | NamedType) -> JsonSchema:
        if isinstance(model, NamedType):
            return {"description": model.description, **self._of(model.type)}
        if dataclasses.is_dataclass(model):
            properties = {name: self._of(kind) for name, kind in get_type_hints(model).items()}
            required = list(properties)
        else:
            fields = msgspec.structs.fields(model)
            properties = {each.encode_name: self._property(each) for each in fields}
            required = [each.encode_name for each in fields if each.required]
            config: msgspec.structs.StructConfig = model.__struct_config__
            if config.tag_field is not None:
                properties[config.tag_field] = _one_of([str(config.tag)])
                required.append(config.tag_field)
        schema: JsonSchema = {
            "type": "object",
            "description": inspect.cleandoc(model.__doc__ or ""),
            "properties": properties,
            "additionalProperties": False,
        }
        return {**schema, "required": required} if required else schema

    def _property(self, field: msgspec.structs.FieldInfo) -> JsonSchema:
        schema = self._of(field.type)
        if field.required:
            return schema
        is_none = isinstance(field.default, (UnsetType, msgspec.Raw))
        return {**schema, "default": None if is_none else field.default}

    def _of(self, kind: object) -> JsonSchema:
        """The schema of a type as a struct's annotations have it."""
        if kind in (object, msgspec.Raw):
            return {}
        if isinstance(kind, dict):
            return kind
        if kind in _TYPE_NAMES:
            return {"type": _TYPE_NAMES[kind]}
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is None and isinstance(kind, type):
            if issubclass(kind, enum.Enum):
                return _one_of([each.value for each in kind])
            return self.add(kind)
        if origin is Annotated:
            schema = dict(self._of(arguments[0]))
            for meta in arguments[1:]:
                schema |= meta.extra_json_schema or {}
            return schema
        if origin is Literal:
            return _one_of(arguments)
        if origin in (Union, types.UnionType):
            return {"anyOf": [self._of(each) for each in arguments if each is not UnsetType]}
        if origin is list:
            return {"type": "array", "items": self._of(arguments[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self._of(arguments[1]) or True}
        raise AssertionError(f"no answer may have a field of type {kind}")


def _one_of(values: Iterable[str | int]) -> JsonSchema:
    choices = list(values)
    schema: JsonSchema = {"type": _TYPE_NAMES[type(choices[0])]}
    return {**schema, **({"const": choices[0]} if len(choices) == 1 else {"enum": choices})}
