"""One record as DumpLogSegments prints it under `--deep-iteration` and `--print-data-log`.

Pure functions. Source: Kafka 4.1 `DumpLogSegments.dumpLog`, log-format.md 14.1.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkalog.format.records.control_record import (
    ControlRecordType,
    read_control_type,
    read_end_transaction_marker,
)

if TYPE_CHECKING:
    from kafkalog.format.records.record import Record

_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}".encode()


def record_line(
    record: Record,
    *,
    timestamp_label: str,
    is_control: bool,
    with_metadata: bool,
    with_contents: bool,
) -> str:
    """The line without its end; FormatError for a broken control record.

    with_contents never shows those of control records. Without metadata and key Kafka 4.1 prints
    no bar in front of the payload.
    """
    parts: list[str] = []
    prefix = "| "
    if with_metadata:
        parts.append(_metadata(record, timestamp_label))
        prefix = " "
        if is_control:
            parts.append(_control(record))
    if with_contents and not is_control:
        if record.key is not None:
            parts.append(f"{prefix}key: {java_text(record.key)}")
        if record.value is not None:
            parts.append(f" payload: {java_text(record.value)}")
    return "".join(parts)


def _metadata(record: Record, timestamp_label: str) -> str:
    header_keys = ",".join(java_text(key) for key, _ in record.headers)
    return (
        f"| offset: {record.offset} {timestamp_label}: {record.timestamp} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)} "
        f"sequence: {record.sequence} headerKeys: [{header_keys}]"
    )


def _control(record: Record) -> str:
    control_type = read_control_type(record.key)
    if control_type in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
        marker = read_end_transaction_marker(record.key, record.value)
        return (
            f" endTxnMarker: {marker.control_type.name} "
            f"coordinatorEpoch: {marker.coordinator_epoch}"
        )
    assert record.key is not None  # read_control_type refused a record without one
    number = int.from_bytes(record.key[2:4], "big", signed=True)
    return f" controlType: {control_type.name}({number})"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def java_text(data: bytes) -> str:
    """As Java's String(bytes, UTF_8): broken bytes become the replacement character.

    Java and Python agree on how many bytes make one, except for encoded surrogates: Java takes all
    bytes of one together.
    """
    return _SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")
