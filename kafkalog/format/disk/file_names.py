"""The names of all files in a log directory, created and parsed only here.

Pure functions. Source: Kafka's `LogFileUtils`, `UnifiedLog` constants and
`CleanShutdownFileHandler`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kafkalog.format.integers import INT64_MAX, FormatError

LOG_SUFFIX = ".log"
OFFSET_INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
INDEX_SUFFIXES = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SEGMENT_SUFFIXES = (LOG_SUFFIX, *INDEX_SUFFIXES)

# Behind any of the above: the stage of a replacement or removal.
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
STAGE_SUFFIXES = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
TEMPORARY_SUFFIX = ".tmp"  # write, sync, rename over
METADATA_CHECKPOINT_DELETED_SUFFIX = ".checkpoint.deleted"  # KRaft's; never removed by the loader

# In a partition directory.
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

# In the log directory itself.
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
LOG_PROOFS = "kafkalog.checkpoint"  # ours: what those of Kafka say, under a checksum

OFFSET_MAX = INT64_MAX
_DIGITS = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class SegmentFileName:
    """A parsed name: ``00000000000000000042.timeindex.deleted`` is (42, .timeindex, .deleted)."""

    offset: int  # a segment's base, or the end offset that a snapshot covers
    suffix: str  # LOG_SUFFIX ... SNAPSHOT_SUFFIX
    stage: str  # empty, or one of STAGE_SUFFIXES

    def __str__(self) -> str:
        return segment_file_name(self.offset, self.suffix, self.stage)


def segment_file_name(offset: int, suffix: str, stage: str = "") -> str:
    """Twenty digits, the kind and, while being replaced or removed, the stage."""
    assert 0 <= offset <= OFFSET_MAX
    return f"{offset:020d}{suffix}{stage}"


def offset_of_file(name: str) -> int:
    """The digits before the first dot; FormatError when there are none or too many."""
    digits, dot, _ = name.partition(".")
    if not dot or not _DIGITS.fullmatch(digits) or int(digits) > OFFSET_MAX:
        raise FormatError(f"File name '{name}' does not start with an offset and a dot")
    return int(digits)


def parse_segment_file(name: str) -> SegmentFileName | None:
    """The parts of a segment or snapshot file's name; None for every other file.

    FormatError when the kind is known and the offset is not one of twenty digits: another number of
    them is never written, and would be a second name for the same offset.
    """
    stage = next((known for known in STAGE_SUFFIXES if name.endswith(known)), "")
    bare = name.removesuffix(stage)
    for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
        if bare.endswith(suffix):
            parsed = SegmentFileName(offset_of_file(name), suffix, stage)
            if str(parsed) != name:
                raise FormatError(f"File name '{name}' does not start with twenty digits")
            return parsed
    return None


def sibling(name: str, suffix: str) -> str:
    """Same segment and directory, other kind: ``a/0042.index`` -> ``a/0042.log``."""
    directory, slash, file_name = name.rpartition("/")
    return f"{directory}{slash}{file_name.partition('.')[0]}{suffix}"


CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'
"""The mark of a clean stop, byte for byte as Kafka writes it where no epoch is known."""
