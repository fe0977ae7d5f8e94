"""Numbers as text for people: sizes, spans, timestamps. Pure; never raises for an int64."""

from __future__ import annotations

import datetime
import json
import re

from kafkalog.format.quantities import NO_LIMITS

# Characters that are invisible or change how the text around them is read: C0 and C1 except tab and
# line ends, soft hyphens, zero-width spaces, bidirectional controls, line separators, tags. The
# joiners (U+200C, U+200D) are allowed: Persian, Hindi and emoji sequences need them.
_UNPRINTABLE_TEXT = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e007f"
)
UNPRINTABLE = re.compile(f"[{_UNPRINTABLE_TEXT}]")
"""A character that a page shows as an escape."""

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_SPANS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_LAST_MS = 253_402_300_799_999  # of the year 9999


def number(value: int) -> str:
    """1234567 -> 1,234,567."""
    return f"{value:,}"


def size(count_bytes: int) -> str:
    """Bytes with a binary unit and one decimal; below 1 KiB exact. Negative: unlimited."""
    if count_bytes < 0:
        return "unlimited"
    if count_bytes < 1024:
        return f"{count_bytes} B"
    value, unit = count_bytes / 1024, 0
    while round(value, 1) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}"


_IN_MS = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}


_UNIT_OF_ENDING = {
    ".ms": "ms",
    ".minutes": "minutes",
    ".hours": "hours",
    "bytes.per.second": "bytes/s",
    "bytes": "bytes",
    "buffer.size": "bytes",
    ".messages": "records",
    "connections": "connections",
}


def config_value(name: str, value: str | None) -> str | None:
    """A value of a config in words: 7 d, 1 GiB, never. None: it says itself what it is.

    The unit is at the end of its name, as everywhere in Kafka.
    """
    units = (unit for ending, unit in _UNIT_OF_ENDING.items() if name.endswith(ending))
    unit = next(units, None)
    if value is None or unit is None:
        return None
    if value in NO_LIMITS:
        is_due = unit == "ms" and "timestamp" not in name
        return "never" if is_due or "flush" in name else "no limit"
    if not value.removeprefix("-").isdigit():
        return None
    count = int(value)
    if count == -1:
        return "no limit"
    if unit in _IN_MS and count > 0:
        return exact_span(count * _IN_MS[unit])
    if unit in ("bytes", "bytes/s") and count >= 1024:
        return size(count).replace(".0 ", " ") + unit.removeprefix("bytes")
    if unit in ("bytes", "bytes/s") and count > 0:
        return f"{count} B" + unit.removeprefix("bytes")
    return number(count) if count >= 1_000 else None


def exact_span(length_ms: int) -> str:
    """All units of a positive length of time: 1 d 1 h 1 min 1 s 1 ms."""
    parts, rest_ms = [], length_ms
    for unit, unit_ms in (*_SPANS, ("ms", 1)):
        whole, rest_ms = divmod(rest_ms, unit_ms)
        parts += [f"{number(whole)} {unit}"] * (whole > 0)
    return " ".join(parts)


def percent(ratio: float) -> str:
    """0.5317 -> 53.2%."""
    return f"{ratio:.1%}"


def quantity(value: float) -> str:
    """Three digits or more: 0, 0.25, 12.5, 1,234."""
    if value >= 100 or value == round(value):
        return number(round(value))
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Of a request: 0.8 ms, 12 ms, 1.25 s."""
    return f"{quantity(seconds)} s" if seconds >= 1 else f"{quantity(seconds * 1000)} ms"


def span(length_ms: int) -> str:
    """A length of time by its two largest units: 3 h 12 min. Negative: unlimited."""
    if length_ms < 0:
        return "unlimited"
    if length_ms < 1_000:
        return f"{length_ms} ms"
    for place, (unit, unit_ms) in enumerate(_SPANS):
        if length_ms < unit_ms:
            continue
        whole, rest_ms = divmod(length_ms, unit_ms)
        if place + 1 == len(_SPANS) or rest_ms < _SPANS[place + 1][1]:
            return f"{number(whole)} {unit}"
        next_unit, next_ms = _SPANS[place + 1]
        return f"{number(whole)} {unit} {rest_ms // next_ms} {next_unit}"
    raise AssertionError("a second is the smallest unit")


def timestamp(timestamp_ms: int | None) -> str:
    """2026-11-26 04:10:00 UTC. None: never; outside the calendar: its ms."""
    if timestamp_ms is None:
        return "never"
    if not 0 <= timestamp_ms <= _LAST_MS:
        return f"{timestamp_ms} ms"
    shown = _EPOCH + datetime.timedelta(milliseconds=timestamp_ms)
    return shown.strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(timestamp_ms: int) -> str:
    """For machines, as ISO-8601; a time outside the calendar becomes its first or last one."""
    shown = _EPOCH + datetime.timedelta(milliseconds=min(max(timestamp_ms, 0), _LAST_MS))
    return shown.strftime("%Y-%m-%dT%H:%M:%SZ")


def field(timestamp_ms: int | None) -> str:
    """The text of an input field for a time; parsed again it is the same timestamp."""
    if timestamp_ms is None:
        return ""
    if not 0 <= timestamp_ms <= _LAST_MS:
        return str(timestamp_ms)
    milliseconds = f".{timestamp_ms % 1000:03d}Z" if timestamp_ms % 1000 else "Z"
    return iso(timestamp_ms).removesuffix("Z") + milliseconds


def offset_range(first: int, end: int) -> str:
    """Offsets from the first to the last one, for an exclusive end."""
    if end <= first:
        return "no offsets"
    if end == first + 1:
        return f"offset {number(first)}"
    return f"offsets {number(first)} to {number(end - 1)}"


def relative(timestamp_ms: int | None, now_ms: int) -> str:
    """From now: in 4 min 18 s, 42 s ago, now. None: never."""
    if timestamp_ms is None:
        return "never"
    distance_ms = timestamp_ms - now_ms
    if abs(distance_ms) < 1_000:
        return "now"
    return f"in {span(distance_ms)}" if distance_ms > 0 else f"{span(-distance_ms)} ago"


def visible(text: str) -> str:
    r"""With an escape (``\u202e``) instead of each character that is not printable."""
    return UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def plural(count: int, noun: str, nouns: str = "") -> str:
    """1 segment, 2 segments; ``nouns``: a plural that does not end with s."""
    return f"{number(count)} {noun if count == 1 else nouns or noun + 's'}"


_ASCII_LOWER = str.maketrans({chr(each): chr(each + 32) for each in range(65, 91)})
_AROUND = 16


def spellings(text: str) -> tuple[str, ...]:
    """A text as it is and, where that differs, as a string of JSON has it in ASCII."""
    return tuple(dict.fromkeys((text, json.dumps(text)[1:-1])))


def excerpt(text: str, part: str) -> tuple[str, str, str]:
    """What is before, in and after the first place of a part, whatever the case of ASCII letters.

    The part counts in any of its ``spellings``. Before it stand some characters alone; without the
    part all of the text.
    """
    lower = text.translate(_ASCII_LOWER)
    for each in spellings(part) if part else ():
        at = lower.find(each.translate(_ASCII_LOWER))
        if at >= 0:
            before = text[:at] if at <= _AROUND else f"…{text[at - _AROUND : at]}"
            return before, text[at : at + len(each)], text[at + len(each) :]
    return text, "", ""


def hexdump(text: str) -> str:
    """Lines of 16 bytes with their place and their ASCII, of what ``bytes.hex(" ")`` writes."""
    data, lines = bytes.fromhex(text), []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        shown = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in row)
        lines.append(f"{at:06x}  {row.hex(' '):<47}  {shown}")
    return "\n".join(lines)
