"""Records as JSON that people read, and back: JSON as it is, text as a string, else base64.

What is shown gives back the very bytes. A string cannot say whether its quotes were stored, and
base64 looks like text: these two are marked by a second member, ``key_format`` or ``value_format``.
Runs Python for each record, for answers that people read. Pure.
"""

from __future__ import annotations

import base64
import codecs
import json
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from kafkalog.format.integers import INT32_MAX, INT64_MAX, FormatError
from kafkalog.format.suggestions import did_you_mean
from kafkalog.format.timestamps import iso_ms

if TYPE_CHECKING:
    from collections.abc import Iterable

Mark = Literal["text", "json", "base64"]

_NUMBER_STARTS = frozenset("-0123456789")
_OTHER_STARTS = frozenset('{["tf')
_EXACT_DIGITS_MAX = 15
"""Digits of a number that every reader of JSON keeps, also one that knows doubles only."""
_SHOWN_MAX = 40  # characters of a line that is no JSON
_NULL = msgspec.Raw(b"null")
_RAW = msgspec.json.Decoder(msgspec.Raw)


# ---- one key or value


def _refuse_constant(name: str) -> None:
    raise FormatError(f"{name} is no JSON value")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_strictly(text: str) -> object:
    """The value of a JSON text. FormatError, also for NaN, Infinity and too deep nesting."""
    try:
        return _DECODER.decode(text)
    except RecursionError as error:
        raise FormatError("it is nested too deeply") from error
    except ValueError as error:
        raise FormatError(str(error)) from error


def readable(data: bytes | None) -> tuple[str, Mark | None]:
    """The JSON text that shows the bytes, and its mark if it needs one.

    A string shows also the JSON that a line would change (with line breaks, or white space around
    it) or that some reader refuses, numbers of more digits than a double holds, and a stored null.
    Bytes with a NUL are no text.
    """
    if data is None:
        return "null", None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return f'"{base64.b64encode(data).decode()}"', "base64"
    if _is_plain_json(text):
        return text, "json" if text[0] == '"' else None
    return json.dumps(text, ensure_ascii=False), None


def _is_plain_json(text: str) -> bool:
    if text[:1] in _NUMBER_STARTS:
        may_be = len(text) <= _EXACT_DIGITS_MAX
    else:
        may_be = text[:1] in _OTHER_STARTS
    if not may_be or "\n" in text or "\r" in text or text[-1] in " \t":
        return False
    try:
        parse_strictly(text)
        _RAW.decode(text)  # as ``parse_record_line`` will: no half of a surrogate pair
    except (ValueError, RecursionError):
        return False
    return True


def stored(text: str, mark: Mark | None) -> bytes | None:
    """The bytes that a JSON text means; None for null. FormatError.

    The text was checked, as ``msgspec.Raw``. Without a mark a string is text, anything else JSON.
    """
    if text == "null":
        return None
    if mark == "json" or (mark is None and text[0] != '"'):
        return text.encode()
    if text[0] != '"':
        raise FormatError(f"{mark} is a string, not {text[:40]}")
    string: str = json.loads(text)
    if mark != "base64":
        return string.encode()
    try:
        return base64.b64decode(string, validate=True)
    except ValueError as error:
        raise FormatError(f"{text[:40]} is not base64") from error


# ---- a line


class LineRecord(NamedTuple):
    """A record of a line: what an append takes of it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | str | None
    partition: int | None


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    value: msgspec.Raw = _NULL
    value_format: Mark | None = None


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    """``topic`` and ``offset`` say where the record was."""

    topic: str | None = None
    key: msgspec.Raw = _NULL
    value: msgspec.Raw = _NULL
    partition: Annotated[int, Meta(ge=0, le=INT32_MAX)] | None = None
    offset: int | None = None
    timestamp: Annotated[int, Meta(ge=-1, le=INT64_MAX)] | str | None = None
    headers: list[_Header] | None = None
    key_format: Mark | None = None
    value_format: Mark | None = None


_LINES = msgspec.json.Decoder(_Line)


def record_line(
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]] = (),
) -> str:
    """A record as an object on one line, without a line end."""
    members = {"topic": json.dumps(topic)}
    marks = {}
    for name, data in (("key", key), ("value", value)):
        members[name], mark = readable(data)
        if mark is not None:
            marks[f"{name}_format"] = f'"{mark}"'
    members |= {"partition": str(partition), "offset": str(offset)}
    members["timestamp"] = str(timestamp_ms)
    shown = ", ".join(_header(name, data) for name, data in headers)
    if shown:
        members["headers"] = f"[{shown}]"
    return _object(members | marks)


def _header(name: str, data: bytes | None) -> str:
    members = {"key": json.dumps(name, ensure_ascii=False)}
    members["value"], mark = readable(data)
    if mark is not None:
        members["value_format"] = f'"{mark}"'
    return _object(members)


def _object(members: dict[str, str]) -> str:
    return "{" + ", ".join(f'"{name}": {text}' for name, text in members.items()) + "}"


def parse_record_line(line: bytes) -> LineRecord:
    """The inverse of ``record_line``; members may be left out, a BOM is ignored. FormatError."""
    line = line.removeprefix(codecs.BOM_UTF8)
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise FormatError("is not UTF-8") from error
    try:
        parsed = parse_strictly(text)
    except ValueError as error:
        begin = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
        raise FormatError(f"is not JSON: {error}; one JSON object a line, not: {begin}") from error
    if not isinstance(parsed, dict):
        raise FormatError("is not a JSON object")
    try:
        return _parsed(_LINES.decode(line))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"is not a record: {error}{_hint(parsed)}") from error


def _hint(parsed: dict[str, object]) -> str:
    """What a record has, where the error does not say it."""
    fields = _Line.__struct_fields__
    unknown = next((name for name in parsed if name not in fields), None)
    if unknown is not None:
        return f"{did_you_mean(unknown, fields) or '.'} A record may have {', '.join(fields)}"
    headers = parsed.get("headers")
    is_list = isinstance(headers, list) and all(
        isinstance(each, dict) and isinstance(each.get("key"), str) for each in headers
    )
    return "" if headers is None or is_list else '; headers is a list of {"key":..., "value":...}'


def _parsed(line: _Line) -> LineRecord:
    if isinstance(line.timestamp, str) and iso_ms(line.timestamp) is None:
        raise FormatError("timestamp is ms since 1970 or ISO-8601 with a zone")
    return LineRecord(
        _bytes_of("key", line.key, line.key_format),
        _bytes_of("value", line.value, line.value_format),
        tuple(
            (each.key, _bytes_of("a header", each.value, each.value_format))
            for each in line.headers or ()
        ),
        line.timestamp,
        line.partition,
    )


def _bytes_of(name: str, raw: msgspec.Raw, mark: Mark | None) -> bytes | None:
    try:
        return stored(bytes(raw).decode(), mark)
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from error
