"""Types of JSON values: of a JSON Schema, or what a sample of values has.

Of JSON Schema (draft 2020-12) the keywords that say the type count: ``type``, ``properties``,
``required``, ``additionalProperties: false``, ``items``, ``format``, ``enum``, ``const``, ``$ref``
to a definition of the same file, and ``anyOf`` or ``oneOf`` of one type and null. Others limit
values (``minimum``, ``pattern``): they are not checked.

| JSON Schema | column |
|---|---|
| string; with format ``date-time``, ``date`` | string; timestamp (UTC), date |
| integer; with format ``int32`` | long; int |
| number; with format ``float`` | double; float |
| boolean, array, object | boolean, list, struct |
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalog.jobs.archive.formats.decoder import UnusableSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SAMPLE_RECORDS = 1000
"""The records of a partition that are looked at to infer a schema."""
_TEXTS = {"date-time": pa.timestamp("us", tz="UTC"), "date": pa.date32()}


def json_schema_type(document: Mapping[str, Any]) -> tuple[pa.DataType, bool]:
    """The type of a JSON Schema, and whether it is closed. Raises UnusableSchema."""
    reader = _SchemaReader(document)
    found, _ = reader.type_of(document, "", ())
    if pa.types.is_list(found):
        raise UnusableSchema("The JSON Schema is that of an array: give one of an object")
    if len(reader.closed) > 1:
        raise UnusableSchema(
            "Some objects of the JSON Schema have additionalProperties: false and others not: give "
            "it to all of them or to none"
        )
    return found, reader.closed == {True}


class _SchemaReader:
    """One reading of a JSON Schema; ``closed``: what its objects say about other fields."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self.closed: set[bool] = set()

    def type_of(
        self, schema: object, path: str, references: tuple[str, ...]
    ) -> tuple[pa.DataType, bool]:
        """The type of a part, and whether it may be null."""
        if not isinstance(schema, dict):
            raise _unusable(path, f"has {schema!r} as its schema: name its type")
        if "$ref" in schema:
            reference = schema["$ref"]
            if reference in references:
                raise _unusable(path, "is recursive: no column can hold it")
            return self.type_of(self._referred(reference, path), path, (*references, reference))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self._of_choice(schema[keyword], path, references)
        kinds = schema.get("type", _kinds_of(schema))
        kinds = [kinds] if isinstance(kinds, str) else list(kinds)
        others = [each for each in kinds if each != "null"]
        if len(others) != 1:
            raise _unusable(path, f"has {len(others)} types ({', '.join(others)}): give it one")
        return self._of_kind(others[0], schema, path, references), "null" in kinds

    def _referred(self, reference: object, path: str) -> object:
        found: Any = self._document
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise _unusable(path, f"refers to {reference!r}: put the definition into the file")
        try:
            for name in reference.removeprefix("#").split("/")[1:]:
                found = found[name.replace("~1", "/").replace("~0", "~")]
        except (KeyError, TypeError) as error:
            raise _unusable(path, f"refers to {reference}, which is not there") from error
        return found

    def _of_choice(
        self, choices: Sequence[object], path: str, references: tuple[str, ...]
    ) -> tuple[pa.DataType, bool]:
        others = [each for each in choices if each != {"type": "null"}]
        if len(others) != 1:
            raise _unusable(path, "may be of several types: give it one")
        found, may_be_null = self.type_of(others[0], path, references)
        return found, may_be_null or len(others) < len(choices)

    def _of_kind(
        self, kind: str, schema: Mapping[str, Any], path: str, references: tuple[str, ...]
    ) -> pa.DataType:
        form = schema.get("format")
        if kind == "object":
            return self._of_object(schema, path, references)
        if kind == "array":
            if "items" not in schema:
                raise _unusable(path, "is an array without items: name their type")
            inner, _ = self.type_of(schema["items"], f"{path}[]", references)
            return pa.list_(inner)
        if kind == "string":
            return _TEXTS.get(str(form), pa.utf8())
        if kind == "integer":
            return pa.int32() if form == "int32" else pa.int64()
        if kind == "number":
            return pa.float32() if form == "float" else pa.float64()
        if kind == "boolean":
            return pa.bool_()
        raise _unusable(path, f"has the type {kind!r}, which JSON Schema does not have")

    def _of_object(
        self, schema: Mapping[str, Any], path: str, references: tuple[str, ...]
    ) -> pa.DataType:
        properties = schema.get("properties")
        if not properties:
            raise _unusable(path, "is an object without properties: name its fields")
        self.closed.add(schema.get("additionalProperties") is False)
        required = set(schema.get("required", ()))
        fields = []
        for name, each in properties.items():
            inner, may_be_null = self.type_of(each, f"{path}.{name}" if path else name, references)
            fields.append(pa.field(name, inner, nullable=may_be_null or name not in required))
        return pa.struct(fields)


def _kinds_of(schema: Mapping[str, Any]) -> list[str]:
    """The types of a schema without the keyword."""
    if "properties" in schema:
        return ["object"]
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return sorted({_kind_of(each) for each in values})


def _unusable(path: str, what: str) -> UnusableSchema:
    return UnusableSchema(f"Field {path or '(the value)'} {what}")


# ---- a sample


def _kind_of(value: object) -> str:
    """The type of a value, in words of JSON Schema."""
    for python, kind in (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (dict, "object"),
    ):
        if isinstance(value, python):
            return kind
    return "null"


def inferred_type(values: Iterable[bytes]) -> pa.DataType | None:
    """The type of most values, which are JSON; None: nothing is known.

    The same values give the same type in any order: a field has the type that most of its values
    have, the one first in the alphabet of those with as many. Integers among numbers are numbers.
    What is no JSON is left out. Texts are never dates: a schema can say that.
    """
    documents = []
    for each in values:
        try:
            text = each.decode()
            document = json.loads(text, parse_constant=_refuse_constant)
            if "\\u" in text:  # halves of surrogate pairs are in no column
                json.dumps(document, ensure_ascii=False).encode()
            documents.append(document)
        except (ValueError, RecursionError):
            continue
    return _type_of_most(documents)


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _type_of_most(values: Sequence[Any]) -> pa.DataType | None:
    kinds = Counter(_kind_of(each) for each in values)
    del kinds["null"]
    if "integer" in kinds and "number" in kinds:
        kinds["number"] += kinds.pop("integer")
    if not kinds:
        return None
    kind = min(kinds, key=lambda each: (-kinds[each], each))
    if kind == "object":
        objects = [each for each in values if isinstance(each, dict)]
        names = sorted(set(chain.from_iterable(objects)))
        found = {name: _type_of_most([each.get(name) for each in objects]) for name in names}
        fields = [pa.field(name, each) for name, each in found.items() if each is not None]
        return pa.struct(fields) if fields else None
    if kind == "array":
        lists = [each for each in values if isinstance(each, list)]
        inner = _type_of_most(list(chain.from_iterable(lists)))
        return None if inner is None else pa.list_(inner)
    return {
        "boolean": pa.bool_(),
        "integer": pa.int64(),
        "number": pa.float64(),
        "string": pa.utf8(),
    }[kind]


def united_type(has: pa.DataType, found: pa.DataType) -> pa.DataType:
    """The type of a table with the fields that were inferred as well, wider where Iceberg can be.

    A field that has another type in the table keeps it: such records are dead letters.
    """
    if pa.types.is_struct(has) and pa.types.is_struct(found):
        new = {each.name: each.type for each in found}
        fields = [
            pa.field(each.name, united_type(each.type, new.pop(each.name, each.type)))
            for each in has
        ]
        return pa.struct([*fields, *(pa.field(name, each) for name, each in new.items())])
    if pa.types.is_list(has) and pa.types.is_list(found):
        return pa.list_(united_type(has.value_type, found.value_type))
    if (has, found) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64())):
        return found
    return has
