"""Protobuf: messages by the protobuf runtime, whose parser is compiled; then a column at a time.

The schema is a set of file descriptors (``protoc --include_imports --descriptor_set_out``) and the
full name of a message. A field without presence has its default where it is not set, as any reader
of proto3 sees it; one with presence is null. Enums are names, ``Timestamp`` is a timestamp, the
wrappers are their values. Fields that the schema does not have are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kafkalog.format.field_reader import encode_varint
from kafkalog.jobs.archive.formats.decoder import (
    UnusableSchema,
    conform,
    decoded_by_halves,
    table_type,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.jobs.archive.formats.decoder import Decoded

_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = frozenset(
    f"google.protobuf.{each}Value"
    for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


@dataclass(frozen=True, slots=True)
class ProtobufDecoder:
    """See the module.

    descriptors  a serialized FileDescriptorSet
    message      the full name of the message
    given        its type
    """

    descriptors: bytes
    message: str
    given: pa.DataType

    @property
    def type(self) -> pa.DataType:
        """See Decoder."""
        return table_type(self.given)

    @classmethod
    def of(cls, descriptors: bytes, message: str) -> ProtobufDecoder:
        """Raises UnusableSchema."""
        descriptor = _message_class(descriptors, message).DESCRIPTOR
        return cls(descriptors, message, _message_type(descriptor, "", ()))

    @property
    def place(self) -> bytes:
        """What Confluent's framing has behind the schema id: where the message is in its schema.

        A count and the index in each message around it, as varints; a zero for the first message.
        Map entries are no messages of the source.
        """
        indexes: list[int] = []
        each = _message_class(self.descriptors, self.message).DESCRIPTOR
        while each is not None:
            around = each.containing_type
            top = each.file.message_types_by_name.values()
            siblings = top if around is None else around.nested_types
            names = [one.full_name for one in siblings if not one.GetOptions().map_entry]
            indexes.insert(0, names.index(each.full_name))
            each = around
        return b"".join(map(encode_varint, [0] if indexes == [0] else [len(indexes), *indexes]))

    def decode(self, column: pa.Array) -> Decoded:
        """See Decoder."""
        return decoded_by_halves(column, partial(_read, decoder=self), self.type)


def _read(column: pa.Array, decoder: ProtobufDecoder) -> pa.Array:
    """The messages of a column without nulls. Raises ValueError: one cannot be decoded."""
    from google.protobuf.message import DecodeError

    parse = _message_class(decoder.descriptors, decoder.message).FromString
    try:
        messages = list(map(parse, column.to_pylist()))
    except DecodeError as error:
        raise ValueError(f"it is not a message {decoder.message}") from error
    if not all(each.IsInitialized() for each in messages):
        raise ValueError("a required field is missing")
    try:
        found = _columns(messages, messages[0].DESCRIPTOR, decoder.given)
        return conform(found, decoder.type)
    except (pa.ArrowException, OverflowError) as error:
        raise ValueError(f"it does not fit the columns: {error}") from error


@lru_cache(maxsize=16)
def _message_class(descriptors: bytes, message: str) -> Any:  # noqa: ANN401 - protobuf's
    """The class of a message. Raises UnusableSchema."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
    except DecodeError as error:
        raise UnusableSchema(
            "It is not a set of file descriptors: make one by protoc --include_imports "
            "--descriptor_set_out=FILE"
        ) from error
    pool = descriptor_pool.DescriptorPool()
    try:
        for each in files.file:
            pool.Add(each)
        found = pool.FindMessageTypeByName(message)
    except KeyError as error:
        names = sorted(
            f"{file.package}.{each.name}" if file.package else each.name
            for file in files.file
            if file.package != "google.protobuf"
            for each in file.message_type
        )
        raise UnusableSchema(
            f"The file descriptors have no message {message}, or lack a file that it imports "
            f"(--include_imports); they have {', '.join(names[:20])}"
        ) from error
    except TypeError as error:
        raise UnusableSchema(
            f"The file descriptors cannot be used (protoc --include_imports?): {error}"
        ) from error
    return message_factory.GetMessageClass(found)


def _message_type(descriptor: Any, path: str, around: tuple[str, ...]) -> pa.DataType:  # noqa: ANN401
    if descriptor.full_name in around:
        raise _unusable(path, "is recursive: no column can hold it")
    if not descriptor.fields:
        raise _unusable(path, "is a message without fields, which no column can hold")
    return pa.struct(
        [
            pa.field(
                each.name,
                _field_type(
                    each,
                    f"{path}.{each.name}" if path else each.name,
                    (*around, descriptor.full_name),
                ),
            )
            for each in descriptor.fields
        ]
    )


def _field_type(field: Any, path: str, around: tuple[str, ...]) -> pa.DataType:  # noqa: ANN401
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = message.fields_by_name["key"], message.fields_by_name["value"]
        return pa.map_(_single_type(key, path, around), _single_type(value, path, around))
    single = _single_type(field, path, around)
    return pa.list_(single) if field.is_repeated else single


def _single_type(field: Any, path: str, around: tuple[str, ...]) -> pa.DataType:  # noqa: ANN401
    message = field.message_type
    if message is not None:
        if message.full_name == _TIMESTAMP:
            return pa.timestamp("us", tz="UTC")
        if message.full_name in _WRAPPERS:
            return _single_type(message.fields[0], path, around)
        return _message_type(message, path, around)
    if field.enum_type is not None:
        return pa.utf8()
    if field.type == field.TYPE_BYTES:
        return pa.binary()
    return {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.uint32(),
        field.CPPTYPE_UINT64: pa.uint64(),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_STRING: pa.utf8(),
    }[field.cpp_type]


def _columns(messages: Sequence[Any], descriptor: Any, wanted: pa.DataType) -> pa.Array:  # noqa: ANN401
    """The fields of messages; None is a message that is not set."""
    is_null = np.fromiter((each is None for each in messages), np.bool_, len(messages))
    given = messages
    if is_null.any():
        empty = _empty_like(messages)
        given = [empty if each is None else each for each in messages]
    children = [
        _field_column(given, field, each.type)
        for field, each in zip(descriptor.fields, wanted, strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=pa.array(is_null))


def _empty_like(messages: Sequence[Any]) -> Any:  # noqa: ANN401 - protobuf's
    for each in messages:
        if each is not None:
            return type(each)()
    return None


def _field_column(messages: Sequence[Any], field: Any, wanted: pa.DataType) -> pa.Array:  # noqa: ANN401
    name = field.name
    if messages and messages[0] is None:  # none of them is set
        return pa.nulls(len(messages), wanted)
    if pa.types.is_map(wanted):
        maps = [getattr(each, name) for each in messages]
        value = field.message_type.fields_by_name["value"]
        items = [each[key] for each in maps for key in each]
        keys = pa.array([key for each in maps for key in each], wanted.key_type)
        return pa.MapArray.from_arrays(
            _offsets(maps), keys, _single_column(items, value, wanted.item_type), type=wanted
        )
    if field.is_repeated:
        lists = [getattr(each, name) for each in messages]
        items = [item for each in lists for item in each]
        inner = _single_column(items, field, wanted.value_type)
        return pa.ListArray.from_arrays(_offsets(lists), inner, type=wanted)
    if field.has_presence:
        return _single_column(
            [getattr(each, name) if each.HasField(name) else None for each in messages],
            field,
            wanted,
        )
    return _single_column([getattr(each, name) for each in messages], field, wanted)


def _offsets(lists: Sequence[Any]) -> pa.Array:
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def _single_column(values: list[Any], field: Any, wanted: pa.DataType) -> pa.Array:  # noqa: ANN401
    """The values of a field, one a row; None is null."""
    message = field.message_type
    if message is None:
        if field.enum_type is not None:
            aliased = reversed(field.enum_type.values)  # of several names the first one counts
            names = {each.number: each.name for each in aliased}
            values = [None if each is None else names.get(each, str(each)) for each in values]
        return pa.array(values, wanted)
    if message.full_name == _TIMESTAMP:
        micros = [
            None if each is None else each.seconds * 1_000_000 + each.nanos // 1000
            for each in values
        ]
        return pa.array(micros, pa.int64()).cast(wanted)
    if message.full_name in _WRAPPERS:
        values = [None if each is None else each.value for each in values]
        return pa.array(values, wanted)
    return _columns(values, message, wanted)


def _unusable(path: str, what: str) -> UnusableSchema:
    return UnusableSchema(f"Field {path or '(the value)'} of the message {what}")
