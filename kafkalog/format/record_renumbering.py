"""Records with new offset deltas: the validator renumbers what a producer compressed wrongly.

Pure functions for any thread. Source: Kafka 4.1 LogValidator, which rebuilds such batches.
"""

from __future__ import annotations

import numpy as np

from kafkalog.kernels.record_build import (
    BUILD_COLUMN_COUNT,
    BUILD_FACT_COUNT,
    BuildColumn,
    BuildFact,
    build_records,
    measure_records,
)
from kafkalog.kernels.record_scan import RECORD_COLUMN_COUNT, RecordColumn, scan_records

_COPIED_COLUMNS = (
    (BuildColumn.KEY_POSITION, RecordColumn.KEY_POSITION),
    (BuildColumn.KEY_LENGTH, RecordColumn.KEY_LENGTH),
    (BuildColumn.VALUE_POSITION, RecordColumn.VALUE_POSITION),
    (BuildColumn.VALUE_LENGTH, RecordColumn.VALUE_LENGTH),
    (BuildColumn.HEADERS_POSITION, RecordColumn.HEADERS_POSITION),
    (BuildColumn.HEADERS_COUNT, RecordColumn.HEADERS_COUNT),
)


def renumber_records(
    records: bytes | memoryview, count: int, base_timestamp: int
) -> tuple[bytes, int]:
    """The same records with offset deltas 0, 1, 2 ..., and the base timestamp of their deltas.

    records  the inflated bytes behind a batch header, which were found well-formed before
    """
    source = np.frombuffer(records, dtype=np.uint8)
    spans = np.empty((count, RECORD_COLUMN_COUNT), dtype=np.int64)
    status = scan_records(source, count, spans)
    assert status == 0, "the records were valid a moment ago"
    table = np.empty((count, BUILD_COLUMN_COUNT), dtype=np.int64)
    table[:, BuildColumn.TIMESTAMP] = base_timestamp + spans[:, RecordColumn.TIMESTAMP_DELTA]
    for target, origin in _COPIED_COLUMNS:
        table[:, target] = spans[:, origin]
    headers_at = spans[:, RecordColumn.HEADERS_POSITION]
    table[:, BuildColumn.HEADERS_LENGTH] = spans[:, RecordColumn.RECORD_END] - headers_at
    selection = np.arange(count, dtype=np.int64)
    facts = np.empty(BUILD_FACT_COUNT, dtype=np.int64)
    out = np.empty(measure_records(table, selection, facts), dtype=np.uint8)
    written = build_records(source, source, source, table, selection, out, 0)
    assert written == len(out), "records that were valid a moment ago fit"
    return out.tobytes(), int(facts[BuildFact.BASE_TIMESTAMP])
