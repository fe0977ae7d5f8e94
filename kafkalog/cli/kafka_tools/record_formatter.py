"""A record as kafka-console-consumer prints it: which fields, between which separators.

Source: `org.apache.kafka.tools.consumer.DefaultMessageFormatter` 4.1, whose properties these are.
Of the deserializers those are known whose text is the same everywhere. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.cli.kafka_tools.pairs import is_true
from kafkalog.cli.kafka_tools.tool import ToolFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalog.client import ConsumerRecord

_PACKAGE = "org.apache.kafka.common.serialization."
_INTEGER_BYTES = {"ShortDeserializer": 2, "IntegerDeserializer": 4, "LongDeserializer": 8}


class UnreadableField(Exception):
    """A key, value or header is not what its deserializer takes."""


def _as_it_is(data: bytes) -> bytes:
    return data


def _as_string(data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode()


def deserializer(name: str) -> Callable[[bytes], bytes]:
    """Bytes to the text of the value that Kafka's class makes of them. ToolFailed."""
    kind = name.removeprefix(_PACKAGE)
    if kind == "StringDeserializer":
        return _as_string
    if kind not in _INTEGER_BYTES:
        known = ", ".join(["StringDeserializer", *_INTEGER_BYTES])
        raise ToolFailed(f"The deserializer {name} is none of {_PACKAGE}: {known}")
    size = _INTEGER_BYTES[kind]

    def number(data: bytes) -> bytes:
        if len(data) != size:
            raise UnreadableField(f"Size of data received by {kind} is not {size}")
        return str(int.from_bytes(data, "big", signed=True)).encode()

    return number


@dataclass(frozen=True, slots=True)
class RecordFormatter:
    """See the module. Separators and the text for null are bytes, as they are printed."""

    shown: frozenset[str]
    key_separator: bytes
    line_separator: bytes
    headers_separator: bytes
    null_literal: bytes
    of_key: Callable[[bytes], bytes]
    of_value: Callable[[bytes], bytes]
    of_header: Callable[[bytes], bytes]

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> RecordFormatter:
        """From the tool's properties. ToolFailed."""
        fields = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
        shown = {field for field in fields if is_true(properties, f"print.{field}")}
        if is_true(properties, "print.value", default=True):
            shown.add("value")

        def text(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        def named(name: str) -> Callable[[bytes], bytes]:
            return deserializer(properties[name]) if name in properties else _as_it_is

        return cls(
            frozenset(shown),
            text("key.separator", "\t"),
            text("line.separator", "\n"),
            text("headers.separator", ","),
            text("null.literal", "null"),
            named("key.deserializer"),
            named("value.deserializer"),
            named("headers.deserializer"),
        )

    def line(self, record: ConsumerRecord, timestamp_type: str) -> bytes:
        """With its end. timestamp_type: Kafka's name. UnreadableField."""
        fields = [part for name, part in self._fields(record, timestamp_type) if name in self.shown]
        return self.key_separator.join(fields) + self.line_separator if fields else b""

    def _fields(self, record: ConsumerRecord, timestamp_type: str) -> list[tuple[str, bytes]]:
        """All that can be shown, in the tool's order; what is not shown is not deserialized."""
        has_key, has_value = "key" in self.shown, "value" in self.shown
        headers = self._headers(record) if "headers" in self.shown else b""
        return [
            ("timestamp", f"{timestamp_type}:{record.timestamp_ms}".encode()),
            ("partition", f"Partition:{record.partition}".encode()),
            ("offset", f"Offset:{record.offset}".encode()),
            ("delivery", b"Delivery:NOT_PRESENT"),
            ("epoch", b"Epoch:NOT_PRESENT"),  # the tool throws the record's epoch away
            ("headers", headers),
            ("key", self.of_key(self._or_literal(record.key)) if has_key else b""),
            ("value", self.of_value(self._or_literal(record.value)) if has_value else b""),
        ]

    def _headers(self, record: ConsumerRecord) -> bytes:
        parts = (
            name.encode("utf-8", "surrogateescape") + b":" + self.of_header(self._or_literal(value))
            for name, value in record.headers
        )
        return self.headers_separator.join(parts) if record.headers else b"NO_HEADERS"

    def _or_literal(self, data: bytes | None) -> bytes:
        return self.null_literal if data is None else data
