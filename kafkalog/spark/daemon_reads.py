"""Batches of a range of offsets from a daemon, one answer ahead of whoever takes them.

While a chunk is decoded the next one is on its way, by a thread of its own. The client tries a
request again when a connection breaks or the daemon is away for less than its patience; each
request begins behind what was delivered, so nothing comes twice.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from kafkalog import client as daemons
from kafkalog.format.records.batch_scan import BatchColumn, scan
from kafkalog.spark.daemon_logs import client_of, isolation_of
from kafkalog.spark.logs import Chunk, CorruptLog, DataLost

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafkalog.client import FetchedBatches
    from kafkalog.spark.logs import Access, OffsetRange, Piece

SLACK_BYTES = 64 << 10
"""More than a piece is said to have: its first batch begins below it, and sizes are estimates."""


def read_daemon_piece(
    piece: Piece, access: Access, chunk_bytes: int, *, check_crcs: bool
) -> Generator[Chunk, None, None]:
    """See `logs.read_piece`."""
    wanted = piece.range
    max_bytes = min(chunk_bytes, piece.size_bytes + SLACK_BYTES)
    isolation = isolation_of(access)
    with closing(client_of(access, piece.place)) as client:

        def fetch(offset: int) -> FetchedBatches:
            return client.fetch_batches(
                wanted.topic, wanted.partition, offset, max_bytes=max_bytes, isolation=isolation
            )

        with ThreadPoolExecutor(1, "kafkalog-prefetch") as ahead:
            next_offset = wanted.from_offset
            coming = ahead.submit(fetch, next_offset)
            while next_offset < wanted.to_offset:
                try:
                    fetched = coming.result()
                except daemons.ClientError as failure:
                    rest = wanted._replace(from_offset=next_offset)
                    if _lies_behind(failure, rest):
                        return
                    loss = _loss(failure, rest)
                    if loss is None:
                        raise
                    raise loss from failure
                offset, next_offset = next_offset, fetched.position.next_offset
                if next_offset == offset:
                    rest = wanted._replace(from_offset=offset)
                    raise DataLost(rest, f"nothing is readable at {offset}")
                if next_offset < wanted.to_offset:
                    coming = ahead.submit(fetch, next_offset)
                if fetched.data:
                    checked = _checked(fetched.data, piece, offset, check_crcs=check_crcs)
                    if checked:
                        yield Chunk(checked, piece.place, 0)


def _loss(failure: daemons.ClientError, rest: OffsetRange) -> DataLost | None:
    """What of the rest is missing; None: only an answer is."""
    if isinstance(failure, daemons.OffsetBelowLogStart):
        start = int(failure.details["log_start_offset"])
        end = min(start, rest.to_offset)
        return DataLost(rest._replace(to_offset=end), f"the log starts at {start}")
    if isinstance(failure, daemons.OffsetAboveLogEnd):
        return DataLost(rest, f"the log ends at {failure.details['log_end_offset']}")
    if isinstance(failure, daemons.UnknownTopic | daemons.UnknownPartition):
        return DataLost(rest, "the partition was deleted")
    lost = _lost_range(failure)
    if lost is not None:
        first, last = max(lost[0], rest.from_offset), min(lost[1], rest.to_offset - 1)
        missing = rest._replace(from_offset=first, to_offset=last + 1)
        return DataLost(missing, "the file that held them is missing or was cut short")
    return None


def _lost_range(failure: daemons.ClientError) -> tuple[int, int] | None:
    """First and last offset that a daemon says are lost; a batch that is damaged is none."""
    details = failure.details
    if isinstance(failure, daemons.DaemonFault) and "first_offset" in details:
        return int(details["first_offset"]), int(details["last_offset"])
    return None


def _lies_behind(failure: daemons.ClientError, rest: OffsetRange) -> bool:
    """Whether only what lies behind the range is lost: nothing is left of the range itself."""
    lost = _lost_range(failure)
    return lost is not None and lost[0] >= rest.to_offset


def _checked(data: bytes, piece: Piece, offset: int, *, check_crcs: bool) -> memoryview:
    """The batches of an answer that lie in the range. Raises CorruptLog."""
    rows = scan(data, check_crc=check_crcs)
    if rows.consumed_bytes != len(data):
        known = int(rows.table[-1, BatchColumn.LAST_OFFSET]) + 1 if rows.count else offset
        problem = f"it arrived broken ({rows.stop.name.lower()})"
        position = rows.stop_position
        raise CorruptLog(piece.range, known, problem, file=piece.place, position=position)
    bases = rows.column(BatchColumn.BASE_OFFSET)
    end = int(np.searchsorted(bases, piece.range.to_offset))
    stop = int(rows.column(BatchColumn.POSITION)[end]) if end < rows.count else len(data)
    return memoryview(data)[:stop]
