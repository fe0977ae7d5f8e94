"""`meta.properties`: which cluster and node a log directory belongs to.

Pure functions; that directories agree with one another is checked by `manager/log_dir.py`.
Source: Kafka's `MetaProperties` and `MetaPropertiesVersion`, log-format.md 11.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.format.format_error import FormatError
from kafkalog.format.integers import INT32_MAX, INT32_MIN
from kafkalog.format.properties_text import decode_properties, encode_properties, java_date
from kafkalog.format.topic_id import decode_id, encode_id, is_reserved

if TYPE_CHECKING:
    from uuid import UUID

_NODE_KEY = {0: "broker.id", 1: "node.id"}  # version 0 is ZooKeeper's era
_INT32 = re.compile(r"[+-]?[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Content of the file. None: the key is absent, as directory.id before Kafka 3.7."""

    cluster_id: str | None
    node_id: int | None
    directory_id: UUID | None
    version: int = 1


def encode_meta_properties(meta: MetaProperties, written_at_ms: int) -> bytes:
    """The whole file with its two comment lines (empty, date of writing)."""
    pairs: dict[str, str] = {}
    if meta.cluster_id is not None:
        pairs["cluster.id"] = meta.cluster_id
    if meta.directory_id is not None:
        pairs["directory.id"] = encode_id(meta.directory_id)
    if meta.node_id is not None:
        pairs[_NODE_KEY[meta.version]] = str(meta.node_id)
    pairs["version"] = str(meta.version)
    return encode_properties(pairs, comments=("", java_date(written_at_ms)))


def decode_meta_properties(data: bytes) -> MetaProperties:
    """FormatError: no or an unknown version, a number or id that is none, a reserved directory.id.

    Unknown keys are ignored. Differs from Kafka: a cluster.id that is not ASCII is none, and a key
    that is missing is damaged when the file shows it with one byte changed.
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
    for key in ("cluster.id", "directory.id", node_key):
        if key not in pairs and _is_nearly_in(data, key.encode()):
            raise FormatError(f"meta.properties: {key} is damaged")
    cluster_id = pairs.get("cluster.id")
    if cluster_id is not None and not cluster_id.isascii():
        raise FormatError(f"meta.properties: cluster.id is not ASCII: {cluster_id!a}")
    directory_id: UUID | None = None
    if "directory.id" in pairs:
        directory_id = decode_id(pairs["directory.id"])
        if is_reserved(directory_id):
            raise FormatError(f"directory.id {pairs['directory.id']} is reserved")
    return MetaProperties(
        cluster_id=cluster_id,
        node_id=_integer(pairs, _NODE_KEY[version]),
        directory_id=directory_id,
        version=version,
    )


def _is_nearly_in(data: bytes, key: bytes) -> bool:
    """Whether the key is there with at most one byte changed."""
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
