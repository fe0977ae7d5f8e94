"""Which batches of a chunk are of no aborted transaction, by the headers alone.

Pure; no Python statement per batch, one round per producer that aborted. Any thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kafkalog.format.batch_scan import BatchColumn, scan

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from kafkalog.format.batch_scan import Buffer

    Table = npt.NDArray[np.int64]
    Mask = npt.NDArray[np.bool_]

_TRANSACTIONAL, _CONTROL = 0x10, 0x20


def is_committed(table: Table, aborted: Table) -> Mask:
    """Which batches belong to none of the aborted transactions; markers never do.

    table    int64[n, 14]  `BatchColumn`
    aborted  int64[m, 3]   producer id, first and last offset; one producer's do not overlap
    """
    attributes = table[:, BatchColumn.ATTRIBUTES]
    is_data = attributes & (_TRANSACTIONAL | _CONTROL) == _TRANSACTIONAL
    committed = np.ones(len(table), np.bool_)
    if not len(aborted) or not is_data.any():
        return committed
    producers = table[:, BatchColumn.PRODUCER_ID]
    bases = table[:, BatchColumn.BASE_OFFSET]
    for producer_id in np.intersect1d(producers[is_data], aborted[:, 0]).tolist():
        rows = np.flatnonzero(is_data & (producers == producer_id))
        firsts, lasts = _spans(aborted[aborted[:, 0] == producer_id])
        slots = np.searchsorted(firsts, bases[rows], side="right") - 1
        committed[rows] = (slots < 0) | (bases[rows] > lasts[slots])
    return committed


def spans_of(table: Table, wanted: Mask) -> list[tuple[int, int]]:
    """Start and end of the runs of wanted batches that lie back to back in their chunk."""
    kept = np.flatnonzero(wanted)
    spans: list[tuple[int, int]] = []
    for run in np.split(kept, np.flatnonzero(np.diff(kept) > 1) + 1):
        if len(run):
            first, last = table[run[0]], table[run[-1]]
            start = int(first[BatchColumn.POSITION])
            end = int(last[BatchColumn.POSITION] + last[BatchColumn.SIZE])
            spans.append((start, end))
    return spans


def committed_batches(chunk: Buffer, aborted: Sequence[tuple[int, int, int]]) -> bytes:
    """Whole batches without those of aborted transactions: (producer id, first, last offset)."""
    table = scan(chunk, check_crc=False).table
    wanted = is_committed(table, np.array(aborted, np.int64).reshape(-1, 3))
    view = memoryview(chunk)
    return b"".join(view[start:end] for start, end in spans_of(table, wanted))


def _spans(aborted: Table) -> tuple[Table, Table]:
    """First and last offsets of one producer's transactions, rising."""
    order = np.argsort(aborted[:, 1], kind="stable")
    return aborted[order, 1], aborted[order, 2]
