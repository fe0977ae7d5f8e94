"""What the dump tool prints of keys and values: as text, or as commits of consumer groups.

Pure. Source: the message parsers of Kafka's ``DumpLogSegments``, JSON as its converters order it.

Differs from Kafka: of ``__consumer_offsets`` only committed offsets are decoded, without the id of
the topic that value version 4 may have. Other keys are called records of an unknown type.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from kafkalog.format.disk.group_offsets import (
    VALUE_VERSION,
    MalformedGroupRecord,
    decode_key,
    decode_value,
)
from kafkalog.format.field_reader import INT16, FieldReader
from kafkalog.format.integers import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.format.records.record import Record

    Decoder = Callable[[Record], tuple[str | None, str | None]]

_EXPIRING_VERSION = 1
_DELETED = "<DELETE>"
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()


def java_text(data: bytes) -> str:
    """As Java's String(bytes, UTF_8): invalid bytes become the replacement character.

    Java and Python agree on how many bytes one replaces, except for encoded surrogates: Java takes
    all bytes of a surrogate together.
    """
    return _SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")


def decode_texts(record: Record) -> tuple[str | None, str | None]:
    """Key and value as text; None where there is none."""
    key, value = (None if each is None else java_text(each) for each in (record.key, record.value))
    return key, value


def decode_offsets(record: Record) -> tuple[str | None, str | None]:
    """A commit as --offsets-decoder prints it; FormatError for a record without a key."""
    if record.key is None:
        raise FormatError(
            f"Failed to decode message at offset {record.offset} using the specified decoder"
            " (message had a missing key)"
        )
    try:
        kind = _version(record.key)
        key = decode_key(record.key)
        if key is None:
            return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
        value = _DELETED if record.value is None else _value_text(record.value)
    except MalformedGroupRecord as error:
        return f"Error at offset {record.offset}, skipping. {error.reason}", None
    data = {"group": key.group, "topic": key.topic, "partition": key.partition}
    return _json({"type": str(kind), "data": data}), value


def _value_text(encoded: bytes) -> str:
    version, value = _version(encoded), decode_value(encoded)
    data: dict[str, object] = {"offset": value.offset}
    if version >= VALUE_VERSION:
        data["leaderEpoch"] = value.leader_epoch
    data |= {"metadata": value.metadata, "commitTimestamp": value.commit_timestamp_ms}
    if version == _EXPIRING_VERSION:
        data["expireTimestamp"] = value.expire_timestamp_ms
    return _json({"version": str(version), "data": data})


def _version(data: bytes) -> int:
    return FieldReader(data, MalformedGroupRecord).number(INT16)


def _json(document: dict[str, object]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))
