"""A line of text as a record: headers, key and value between separators.

Source: `org.apache.kafka.tools.LineMessageReader` 4.1, whose properties and messages these are.
Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.cli.kafka_tools.pairs import is_true
from kafkalog.client import ProducerRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.client.records import Headers


class UnreadableLine(Exception):
    """What the tool says of it, or of properties that contradict one another."""


@dataclass(frozen=True, slots=True)
class LineReader:
    """See the module. ``null_marker`` None: nothing stands for null."""

    parses_key: bool = False
    parses_headers: bool = False
    key_separator: str = "\t"
    headers_delimiter: str = "\t"
    headers_separator: str = ","
    headers_key_separator: str = ":"
    null_marker: str | None = None
    ignores_errors: bool = False

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> LineReader:
        """From the tool's properties. UnreadableLine when two separators are the same."""
        reader = cls(
            is_true(properties, "parse.key"),
            is_true(properties, "parse.headers"),
            properties.get("key.separator", "\t"),
            properties.get("headers.delimiter", "\t"),
            properties.get("headers.separator", ","),
            properties.get("headers.key.separator", ":"),
            properties.get("null.marker"),
            is_true(properties, "ignore.error"),
        )
        reader._check()
        return reader

    def _check(self) -> None:
        delimiter = ("headers.delimiter", self.headers_delimiter)
        separator = ("headers.separator", self.headers_separator)
        key_separator = ("headers.key.separator", self.headers_key_separator)
        marker = ("null.marker", self.null_marker)
        for first, second in (
            (delimiter, separator),
            (delimiter, key_separator),
            (separator, key_separator),
            (marker, ("key.separator", self.key_separator)),
            (marker, separator),
            (marker, delimiter),
            (marker, key_separator),
        ):
            if first[1] == second[1]:
                raise UnreadableLine(f"{first[0]} and {second[0]} may not be equal")
        try:
            re.compile(self.headers_separator)
        except re.error as error:
            raise UnreadableLine(f"headers.separator is no expression: {error}") from error

    def record(self, line: str, number: int) -> ProducerRecord:
        """Of the line with this number, counted from 1. UnreadableLine."""
        headers: str | None = None
        key: str | None = None
        rest = line
        if self.parses_headers:
            delimiter = (self.headers_delimiter, "headers delimiter")
            headers, rest = self._cut(line, rest, delimiter, number)
        if self.parses_key:
            key, rest = self._cut(line, rest, (self.key_separator, "key separator"), number)
        return ProducerRecord(
            self._or_null(rest), self._or_null(key), self._headers(headers, number)
        )

    def _cut(
        self, line: str, rest: str, separator: tuple[str, str], number: int
    ) -> tuple[str | None, str]:
        """What stands before the separator, and what behind it."""
        before, found, behind = rest.partition(separator[0])
        if found:
            return before, behind
        if self.ignores_errors:
            return None, rest
        raise UnreadableLine(f"No {separator[1]} found on line number {number}: '{line}'")

    def _or_null(self, text: str | None) -> str | None:
        return None if text == self.null_marker else text

    def _headers(self, text: str | None, number: int) -> Headers:
        if text is None or text == self.null_marker:
            return ()
        parts = re.split(self.headers_separator, text)
        while len(parts) > 1 and not parts[-1]:
            parts.pop()  # as Java splits
        return tuple(self._header(part, number) for part in parts)

    def _header(self, pair: str, number: int) -> tuple[str, bytes | None]:
        name, found, value = pair.partition(self.headers_key_separator)
        if not found:
            if self.ignores_errors:
                return pair, None
            raise UnreadableLine(
                f"No header key separator found in pair '{pair}' on line number {number}"
            )
        if name == self.null_marker:
            raise UnreadableLine(
                f"Header keys should not be equal to the null marker '{name}' as they can't be null"
            )
        return name, None if value == self.null_marker else value.encode()
