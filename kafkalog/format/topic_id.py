"""Topic and directory ids: sixteen bytes, written as 22 characters of URL-safe base64.

Pure functions. Source: Kafka's `Uuid` and `DirectoryId`.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING
from uuid import UUID

from kafkalog.format.format_error import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """Whether the id has a meaning of its own and may name no topic or directory."""
    return value.int < _RESERVED_IDS


def new_id(random_bytes: Callable[[], bytes]) -> UUID:
    """A random version-4 id; like Kafka's, never one whose text starts with a dash.

    random_bytes returns sixteen fresh random bytes at every call.
    """
    while True:
        value = UUID(bytes=random_bytes(), version=4)
        if not encode_id(value).startswith("-"):
            return value
