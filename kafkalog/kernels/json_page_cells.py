"""Names of the state of a JSON page, for the kernels of `json_records.py` and their caller."""

from __future__ import annotations

import enum


class EmbeddedKind(enum.IntEnum):
    """How key and value appear."""

    BINARY = 0  # base64
    JSON = 1  # as stored
    TEXT = 2  # a JSON string


class PageStatus(enum.IntEnum):
    """Why `write_records` came back."""

    BATCH_DONE = 0
    GROW = 1  # enlarge out and call again
    PAGE_FULL = 2  # max_bytes or end_offset reached
    BAD_TEXT = 3  # FAILED_OFFSET, FAILED_IS_VALUE; text format only
    BAD_RECORD = 4  # the batch's records break their format
    OTHER_BATCH = 5  # `write_batches` met a batch that the caller must look at


class PageCell(enum.IntEnum):
    """The state of a page; the first group is set by the caller for each page or batch."""

    FORMAT = 0
    FROM_OFFSET = 1  # records below are skipped
    END_OFFSET = 2  # records from here on are not written
    MAX_BYTES = 3  # of keys and values; the first record is always written
    BASE_OFFSET = 4  # of the batch
    BASE_TIMESTAMP = 5
    APPEND_TIMESTAMP = 6  # replaces every record's when IS_APPEND_TIME
    IS_APPEND_TIME = 7
    RECORDS_LEFT = 8  # of the batch; -1: its header was not read yet
    POSITION = 9  # of the next record in the batch
    OUT_POSITION = 10
    PAYLOAD_BYTES = 11
    COUNT = 12
    NEXT_OFFSET = 13  # behind the last record written or skipped
    SPANS = 14  # json format: rows of spans in use, two a record
    FAILED_OFFSET = 15
    FAILED_IS_VALUE = 16
    BATCH_POSITION = 17  # of the batch at hand


_ROW_CELLS = 9
FIRST_ROW_CELL = len(PageCell)
PAGE_CELL_COUNT = FIRST_ROW_CELL + _ROW_CELLS
"""The cells of PageCell and behind them the fields of the record at hand."""

SPAN_BYTES = 32
"""A record has two spans and more than 64 bytes of text: `len(out) // SPAN_BYTES` rows suffice."""

SPAN_COLUMN_COUNT = 4
