r"""Java's `.properties` text, and the two files of a log directory that are written in such lines.

`.properties`: the grammar of `java.util.Properties.load` and `store`; bytes are ISO 8859-1, all
other characters are written as ``\u00e4``. `meta.properties` names cluster, node and directory.
`partition.metadata` names the topic id of a directory: exactly ``version: 0``, newline, ``topic_id:
<22 characters>``, no newline at the end (43 bytes). Pure functions. Source: Kafka's
`MetaProperties`, `MetaPropertiesVersion`, `PartitionMetadata`.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kafkalog.format.integers import INT32_MAX, INT32_MIN, FormatError
from kafkalog.format.topic_names import ZERO_ID, decode_id, encode_id, is_reserved

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID


_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\f": r"\f"}
_ESCAPED_BLANK = "\\ "
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def decode_properties(data: bytes) -> dict[str, str]:
    r"""All pairs; of a repeated key the last value counts. FormatError: a broken ``\u`` escape."""
    return {key: value for key, (value, _) in decode_numbered_properties(data).items()}


def decode_numbered_properties(data: bytes) -> dict[str, tuple[str, int]]:
    """As ``decode_properties``, each value with the number of the line where its pair begins."""
    properties: dict[str, tuple[str, int]] = {}
    # Differs from Java, for which an editor's byte order mark begins the first key.
    for number, line in _logical_lines(data.removeprefix(BOM_UTF8).decode("latin-1")):
        key_end, value_start = _split(line)
        properties[_unescape(line[:key_end])] = _unescape(line[value_start:]), number
    return properties


def binary_fault(data: bytes) -> str | None:
    """Why data is no text, whose bytes nobody would take for settings; None: it may be."""
    found = _BINARY.search(data)
    if found is None:
        return None
    number = data.count(b"\n", 0, found.start()) + 1
    return f"it is no text: line {number} holds the byte 0x{found.group()[0]:02x}"


def encode_properties(pairs: Mapping[str, str], comments: Iterable[str] = ()) -> bytes:
    """Comment lines (each gets a ``#``; one line each), then the pairs in the given order."""
    lines: list[str] = []
    for comment in comments:
        assert not _LINE_END.search(comment)
        lines.append("#" + "".join(map(_escape_unprintable, comment)))
    for key, value in pairs.items():
        # Of a value's blanks only leading ones would be lost; as Java, escape the first one.
        escaped, mark = _escape(value), "\\" if value.startswith(" ") else ""
        lines.append(f"{_escape(key).replace(' ', _ESCAPED_BLANK)}={mark}{escaped}")
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def java_date(wall_ms: int) -> str:
    """``Fri Nov 20 23:29:09 UTC 2026``, the date comment of Properties.store; always in UTC."""
    at = datetime.fromtimestamp(wall_ms // 1000, tz=UTC)
    day, month = _DAYS[at.weekday()], _MONTHS[at.month - 1]
    return f"{day} {month} {at.day:02d} {at:%H:%M:%S} UTC {at.year}"


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Lines with their continuations joined, without comments and blank lines, numbered from 1.

    As in Java: a comment sign starts a comment on a continuation line only when nothing precedes
    it; a backslash at the end of the text, or before its last line end, leaves a line, perhaps an
    empty one.
    """
    if text.endswith(("\n", "\r")) and not text.endswith("\r\n"):
        text = text[:-1]
    natural = iter(enumerate(_LINE_END.split(text), 1))
    for number, line in natural:
        logical = line.lstrip(_BLANKS)
        while _is_continued(logical) and not _is_comment(logical):
            following = next(natural, None)
            if following is None:
                yield number, logical[:-1]
                return
            logical = logical[:-1] + following[1].lstrip(_BLANKS)
        if logical and not _is_comment(logical):
            yield number, logical


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
    # Two escapes of a surrogate pair are one character; a lone surrogate is kept.
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


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


_GIVEN_DIRECTORY_KEY = "kafkalog.dir.id"  # one that contains directory.id is taken for its damage
_NODE_KEY = {0: "broker.id", 1: "node.id"}  # version 0 is ZooKeeper's era
_INT32 = re.compile(r"[+-]?[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Content of the file. None: the key is absent, as directory.id before Kafka 3.7.

    ``is_directory_id_given``: the Kafka whose file it is has none; it is kafkalog's, under a key of
    its own, so that it can be taken out again.
    """

    cluster_id: str | None
    node_id: int | None
    directory_id: UUID | None
    version: int = 1
    is_directory_id_given: bool = False

    @property
    def is_of_zookeeper(self) -> bool:
        """Whether a Kafka with ZooKeeper wrote it."""
        return self.version == 0


def encode_meta_properties(meta: MetaProperties, written_at_ms: int) -> bytes:
    """The whole file with its two comment lines (empty, date of writing)."""
    pairs: dict[str, str] = {}
    if meta.cluster_id is not None:
        pairs["cluster.id"] = meta.cluster_id
    if meta.directory_id is not None:
        key = _GIVEN_DIRECTORY_KEY if meta.is_directory_id_given else "directory.id"
        pairs[key] = encode_id(meta.directory_id)
    if meta.node_id is not None:
        pairs[_NODE_KEY[meta.version]] = str(meta.node_id)
    pairs["version"] = str(meta.version)
    return encode_properties(pairs, comments=("", java_date(written_at_ms)))


def decode_meta_properties(data: bytes) -> MetaProperties:
    """FormatError: a missing or unknown version, an invalid number or id, a reserved directory.id.

    Unknown keys are ignored. Differs from Kafka: a cluster.id must be ASCII, and a missing key
    is damage when the file contains it with one byte changed.
    """
    pairs = decode_properties(data)
    version = _integer(pairs, "version")
    if version is None:
        raise FormatError("meta.properties has no version")
    if version not in _NODE_KEY:
        raise FormatError(f"Unknown meta.properties version number {version}")
    node_key, other_node_key = _NODE_KEY[version], _NODE_KEY[1 - version]
    if node_key not in pairs and other_node_key in pairs:
        raise FormatError(f"meta.properties: version {version} has no {other_node_key}")
    for key in ("cluster.id", "directory.id", _GIVEN_DIRECTORY_KEY, node_key):
        if key not in pairs and _is_nearly_in(data, key.encode()):
            raise FormatError(f"meta.properties: {key} is damaged")
    cluster_id = pairs.get("cluster.id")
    if cluster_id is not None and not cluster_id.isascii():
        raise FormatError(f"meta.properties: cluster.id is not ASCII: {cluster_id!a}")
    directory_id: UUID | None = None
    own_key = "directory.id" if "directory.id" in pairs else _GIVEN_DIRECTORY_KEY
    if own_key in pairs:
        directory_id = decode_id(pairs[own_key])
        if is_reserved(directory_id):
            raise FormatError(f"{own_key} {pairs[own_key]} is reserved")
    return MetaProperties(
        cluster_id=cluster_id,
        node_id=_integer(pairs, _NODE_KEY[version]),
        directory_id=directory_id,
        version=version,
        is_directory_id_given=directory_id is not None and own_key == _GIVEN_DIRECTORY_KEY,
    )


def _is_nearly_in(data: bytes, key: bytes) -> bool:
    """Whether the data contain the key with at most one byte changed."""
    for start in range(len(data) - len(key) + 1):
        shown = data[start : start + len(key)]
        if sum(one != other for one, other in zip(shown, key, strict=True)) <= 1:
            return True
    return False


def _integer(pairs: dict[str, str], key: str) -> int | None:
    """An int32, or None when the key is absent."""
    text = pairs.get(key)
    if text is None:
        return None
    value = int(text) if _INT32.fullmatch(text) else None
    if value is None or not INT32_MIN <= value <= INT32_MAX:
        raise FormatError(f"meta.properties: {key} is no number: '{text}'")
    return value


VERSION = 0

_LINES = re.compile(
    r"version:[ \t\f\v]+(?P<version>[0-9]{1,10})(?:\r\n|\r|\n)"
    r"topic_id:[ \t\f\v]+(?P<topic_id>[^\s:]+)[ \t\f\v]*(?:\r\n|\r|\n)?",
    re.ASCII,
)


def encode_partition_metadata(topic_id: UUID) -> bytes:
    """The whole file."""
    assert topic_id != ZERO_ID
    return f"version: {VERSION}\ntopic_id: {encode_id(topic_id)}".encode()


def decode_partition_metadata(data: bytes) -> UUID:
    """The topic id; any version from 0 on is accepted. FormatError for all else and the zero id."""
    try:
        match = _LINES.fullmatch(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError("The partition metadata is not UTF-8", error.start) from error
    if match is None:
        raise FormatError(f"Malformed partition metadata: {data[:100]!r}")
    topic_id = decode_id(match["topic_id"])
    if topic_id == ZERO_ID:
        raise FormatError(f"Invalid topic ID in partition metadata: {encode_id(topic_id)}")
    return topic_id
