r"""Java's `.properties` text, complete: reading and writing.

Never interprets a key. Pure functions. Source: the grammar of `java.util.Properties.load`/`store`
(bytes are ISO 8859-1; everything else is written as ``\u00E4``).
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kafkalog.format.format_error import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\f": r"\f"}
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def decode_properties(data: bytes) -> dict[str, str]:
    r"""All pairs; of a repeated key the last value holds. FormatError: a broken ``\u`` escape."""
    properties: dict[str, str] = {}
    # Differs from Java, for which an editor's byte order mark begins the first key.
    for line in _logical_lines(data.removeprefix(BOM_UTF8).decode("latin-1")):
        key_end, value_start = _split(line)
        properties[_unescape(line[:key_end])] = _unescape(line[value_start:])
    return properties


def encode_properties(pairs: Mapping[str, str], comments: Iterable[str] = ()) -> bytes:
    """Comment lines (``#`` is put in front; one line each), then the pairs in the given order."""
    lines: list[str] = []
    for comment in comments:
        assert not _LINE_END.search(comment)
        lines.append("#" + "".join(map(_escape_unprintable, comment)))
    lines += [f"{_escape_key(key)}={_escape_value(value)}" for key, value in pairs.items()]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def java_date(wall_ms: int) -> str:
    """``Fri Nov 20 23:29:09 UTC 2026``, the date comment of Properties.store; always in UTC."""
    at = datetime.fromtimestamp(wall_ms // 1000, tz=UTC)
    day, month = _DAYS[at.weekday()], _MONTHS[at.month - 1]
    return f"{day} {month} {at.day:02d} {at:%H:%M:%S} UTC {at.year}"


def _logical_lines(text: str) -> Iterable[str]:
    """Lines with their continuations joined, without comments and blank lines.

    As Java joins them: a comment sign starts a comment on a continuation line only while nothing
    stands before it, and a backslash that ends the text, or stands before the one sign that ends
    it, leaves a line, be it empty.
    """
    if text.endswith(("\n", "\r")) and not text.endswith("\r\n"):
        text = text[:-1]
    natural = iter(_LINE_END.split(text))
    for line in natural:
        logical = line.lstrip(_BLANKS)
        while _is_continued(logical) and not _is_comment(logical):
            following = next(natural, None)
            if following is None:
                yield logical[:-1]
                return
            logical = logical[:-1] + following.lstrip(_BLANKS)
        if logical and not _is_comment(logical):
            yield logical


def _is_comment(line: str) -> bool:
    return line.startswith(("#", "!"))


def _is_continued(line: str) -> bool:
    """Whether an odd number of backslashes ends the line."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[int, int]:
    """End of the key and start of the value: blanks around at most one ``=`` or ``:``."""
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    key_end = min(position, len(line))
    rest = line[key_end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key_end, len(line) - len(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while (backslash := text.find("\\", position)) >= 0:
        parts.append(text[position:backslash])
        sign = text[backslash + 1 : backslash + 2]
        position = backslash + 2
        if sign == "u":
            digits = text[position : position + 4]
            if not _HEX4.fullmatch(digits):
                raise FormatError(f"Malformed \\uxxxx encoding in '{text}'")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPED.get(sign, sign))
    parts.append(text[position:])
    # Two escapes of a surrogate pair are one character; a lone surrogate stays as it is.
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _escape_key(key: str) -> str:
    return _escape(key).replace(" ", "\\ ")


def _escape_value(value: str) -> str:
    """Only a blank at the start would be lost; Java escapes the first one."""
    escaped = _escape(value)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _escape(text: str) -> str:
    return "".join(
        f"\\{character}"
        if character in "\\=:#!"
        else _WRITTEN.get(character) or _escape_unprintable(character)
        for character in text
    )


def _escape_unprintable(character: str) -> str:
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
