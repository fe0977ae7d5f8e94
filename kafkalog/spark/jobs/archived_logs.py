"""Whether a log is still the one that a table holds the beginning of.

Offsets alone do not say. A topic that was deleted and made anew, and a log that lost its end, both
grow until they reach the offset that the table wants next; what they have below it would never be
archived, and retention would hear that it was. So a commit notes the topic's id, and of the newest
record of each partition its offset and a checksum of what compaction keeps of it. Another id,
another record there, or an end below the table's: ArchiveAhead.

Not noticed: a log that lost its end where no record can be seen any more at that offset, because it
was cleaned away, deleted or aborted; and anything that happened before the table was written to by
a version that notes these.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from kafkalog.errors import KafkalogError
from kafkalog.spark.jobs.archive_files import SCHEMA, last_record
from kafkalog.spark.logs import TARGET_BYTES, DataLost, OffsetRange, open_logs, read_piece
from kafkalog.spark.record_batches import record_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalog.spark.jobs.archive_sources import ArchiveSource
    from kafkalog.spark.jobs.archive_table import LastRecord, Position
    from kafkalog.spark.logs import Access, Bounds

_WHAT_TO_DO = "Archive it into another table"


class ArchiveAhead(KafkalogError):
    """The table holds records that the log has not: it was cut, or made anew under its name."""


def check_topics(
    archived: Mapping[str, str], found: Mapping[str, str], topics: Iterable[str]
) -> None:
    """ArchiveAhead when one of the topics has another id than the table's; unknown ids pass."""
    for topic in topics:
        archived_id, found_id = archived.get(topic), found.get(topic)
        if None not in (archived_id, found_id) and archived_id != found_id:
            raise ArchiveAhead(
                f"The table holds topic {topic} with the id {archived_id}, but the topic of that "
                f"name has the id {found_id}: it was deleted and made anew. {_WHAT_TO_DO}",
                topic=topic,
            )


def check_log(
    source: ArchiveSource, archived: Position, topic: str, partition: int, bounds: Bounds
) -> None:
    """ArchiveAhead unless the log goes on where the table ends, as far as that can be seen.

    bounds   of the log, which are asked for anyway
    """
    next_offset = archived.next_offsets.get((topic, partition), bounds.log_start_offset)
    if next_offset > bounds.end_offset:
        raise _beyond(source.access, topic, partition, next_offset, bounds.end_offset)
    last = archived.last_records.get((topic, partition))
    if last is None or last.offset < bounds.log_start_offset:
        return
    found = _record_at(source, OffsetRange(topic, partition, last.offset, last.offset + 1))
    if found not in (None, last):
        raise ArchiveAhead(
            f"The table holds another record of {topic}-{partition} at offset {last.offset} than "
            f"the log: it lost its end, and others came there. {_WHAT_TO_DO}",
            topic=topic,
            partition=partition,
        )


def _beyond(access: Access, topic: str, partition: int, next_offset: int, end: int) -> ArchiveAhead:
    """Why the table is further than what can be read."""
    if access.read_committed and next_offset <= _visible(access, topic, partition).end_offset:
        return ArchiveAhead(
            f"The table wants {topic}-{partition} from offset {next_offset} on, but a transaction "
            f"is open there since {end}: it was archived with --uncommitted. Go on with that, or "
            "wait until the transaction has ended",
            topic=topic,
            partition=partition,
        )
    return ArchiveAhead(
        f"The table wants {topic}-{partition} from offset {next_offset} on, but the log ends at "
        f"{end}: it lost its end, or is another topic of that name. {_WHAT_TO_DO}",
        topic=topic,
        partition=partition,
    )


def _visible(access: Access, topic: str, partition: int) -> Bounds:
    """Of all that is written, committed or not."""
    with closing(open_logs(replace(access, read_committed=False))) as logs:
        return logs.bounds(topic, partition)


def _record_at(source: ArchiveSource, wanted: OffsetRange) -> LastRecord | None:
    """The record of an offset; None: none can be seen there (any more)."""
    try:
        for piece in source.logs.pieces(wanted, TARGET_BYTES):
            with closing(cast("Any", read_piece(piece, source.access))) as chunks:
                for batch in record_batches(chunks, wanted, SCHEMA):
                    if batch.num_rows:
                        return last_record(batch)
    except DataLost:  # deleted a moment ago
        return None
    return None
