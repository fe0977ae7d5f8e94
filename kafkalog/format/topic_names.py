"""Topic names, partitions, the names of their directories, and topic and directory ids.

Owns the naming rules in both directions. An id is a UUID, written as 22 characters of URL-safe
base64. Pure; any thread. Source: Kafka's `Topic`, `TopicPartition`,
`LocalLog.parseTopicPartitionName`, `Uuid` and `DirectoryId`.
"""

from __future__ import annotations

import base64
import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from kafkalog.format.integers import INT32_MAX, FormatError

if TYPE_CHECKING:
    from collections.abc import Callable


TOPIC_NAME_LENGTH_MAX = 249
DIRECTORY_NAME_LENGTH_MAX = 255
PARTITION_MAX = INT32_MAX

GROUP_OFFSETS_TOPIC = "__consumer_offsets"
SINK_STATE_TOPIC = "__sink_state"  # kafkalog's own
INTERNAL_TOPICS = frozenset(
    {GROUP_OFFSETS_TOPIC, SINK_STATE_TOPIC, "__transaction_state", "__share_group_state"}
)
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
REMOTE_LOG_INDEX_CACHE = "remote-log-index-cache"  # the only other directory that is skipped

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_PARTITION = re.compile(r"\+?[0-9]+")
_UNIQUE_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One partition; ordered by topic, then number. Text form: ``topic-0``, its directory name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class DirectoryState(enum.Enum):
    """What the suffix of a partition directory says; the value is the suffix."""

    LIVE = ""
    DELETE = "-delete"  # the topic was deleted, removal waits for its delay
    FUTURE = "-future"  # a copy that is being moved to this log directory
    STRAY = "-stray"  # found at start-up and not assigned here; for the operator


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """A parsed directory name.

    For DELETE and STRAY the topic may have been cut, so it is no identity. unique_id is None when
    LIVE, otherwise the text between the last dot and the suffix.
    """

    topic_partition: TopicPartition
    state: DirectoryState
    unique_id: str | None


def topic_name_fault(name: str) -> str | None:
    """Why name is no legal topic name, in Kafka's words; None when it is one."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return "Topic name is invalid: '.' or '..' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return (
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{TOPIC_NAME_LENGTH_MAX}"
        )
    if not _LEGAL_NAME.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def collision_key(name: str) -> str:
    """Two different topics with the same key collide in metric names: refuse the second."""
    return name.replace(".", "_")


def is_internal(name: str) -> bool:
    """Whether the topic holds Kafka's own state: no delete-records, not for clients."""
    return name in INTERNAL_TOPICS


def directory_name(
    topic_partition: TopicPartition,
    state: DirectoryState = DirectoryState.LIVE,
    unique_id: str | None = None,
) -> str:
    """Name of the partition's directory; unique_id is 32 hex digits, needed unless LIVE.

    DELETE and STRAY cut the topic so that the name has at most 255 characters. Raises FormatError
    when a FUTURE name is longer: such a move is refused.
    """
    if state is DirectoryState.LIVE:
        assert unique_id is None
        return str(topic_partition)
    assert unique_id is not None
    assert is_unique_id(unique_id)
    suffix = f"-{topic_partition.partition}.{unique_id}{state.value}"
    room = DIRECTORY_NAME_LENGTH_MAX - len(suffix)
    if state is DirectoryState.FUTURE and len(topic_partition.topic) > room:
        raise FormatError(
            f"The topic name of {topic_partition} is too long to be moved: its directory name "
            f"would exceed {DIRECTORY_NAME_LENGTH_MAX} characters"
        )
    return topic_partition.topic[:room] + suffix


def parse_directory_name(name: str) -> PartitionDirectory:
    """Reverse of directory_name; FormatError for any other name, which is fatal at start-up."""
    state = next(
        (known for known in DirectoryState if known.value and name.endswith(known.value)),
        DirectoryState.LIVE,
    )
    live_name, unique_id = name, None
    if state is not DirectoryState.LIVE:
        if not re.fullmatch(rf"\S+-\S+\.\S+{state.value}", name):
            raise _not_a_partition(name)
        live_name, _, unique_id = name.removesuffix(state.value).rpartition(".")
    topic, _, number = live_name.rpartition("-")
    if not topic or not _PARTITION.fullmatch(number) or int(number) > PARTITION_MAX:
        raise _not_a_partition(name)
    return PartitionDirectory(TopicPartition(topic, int(number)), state, unique_id)


def live_partition(name: str) -> TopicPartition | None:
    """The partition that is served from a directory of this name; None: there is none."""
    try:
        parsed = parse_directory_name(name)
    except FormatError:
        return None
    return parsed.topic_partition if parsed.state is DirectoryState.LIVE else None


def is_partition_name(name: str) -> bool:
    """Whether a directory of this name is a partition's, served or not."""
    try:
        parse_directory_name(name)
    except FormatError:
        return name == REMOTE_LOG_INDEX_CACHE
    return True


def is_unique_id(text: str | None) -> bool:
    """Whether Kafka could have put it before a suffix: 32 hex digits."""
    return text is not None and _UNIQUE_ID.fullmatch(text) is not None


def _not_a_partition(name: str) -> FormatError:
    return FormatError(
        f"Found directory '{name}' that is not in the form of topic-partition or "
        "topic-partition.uniqueId-delete (if marked for deletion). Log directories should only "
        "contain topic data"
    )


ZERO_ID = UUID(int=0)
METADATA_TOPIC_ID = UUID(int=1)
_RESERVED_IDS = 100  # 0 to 99 mean "unassigned", "lost", "migrating" and later inventions
_TEXT = re.compile(r"[A-Za-z0-9_-]{22}(==)?")


def encode_id(value: UUID) -> str:
    """22 characters, no padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def decode_id(text: str) -> UUID:
    """Reverse of encode_id; padding is accepted, all else is a FormatError."""
    if not _TEXT.fullmatch(text):
        raise FormatError(f"'{text}' is no id of 22 base64url characters")
    return UUID(bytes=base64.urlsafe_b64decode(text[:22] + "=="))


def is_reserved(value: UUID) -> bool:
    """Whether Kafka reserves the id, so that no topic or directory may have it."""
    return value.int < _RESERVED_IDS


def new_id(random_bytes: Callable[[], bytes]) -> UUID:
    """A random version-4 id; like Kafka's, never one whose text starts with a dash.

    random_bytes returns sixteen fresh random bytes at every call.
    """
    while True:
        value = UUID(bytes=random_bytes(), version=4)
        if not encode_id(value).startswith("-"):
            return value
