"""Names of the state of a page of records as text, for the kernels of `json_records.py`."""

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
    GROW = 1  # enlarge out and spans and call again
    PAGE_FULL = 2  # max_bytes or max_records reached
    BAD_TEXT = 3  # FAILED_OFFSET, FAILED_IS_VALUE; text format only
    BAD_RECORD = 4  # the batch's records break their format
    OTHER_BATCH = 5  # `write_batches` met a batch that the caller must look at
    AT_END = 6  # end_offset reached
    PAST_TIME = 7  # a record of until_timestamp or later
    CHUNK_FULL = 8  # the output reached CHUNK_END; call again to go on


class PageText(enum.IntEnum):
    """The fixed texts of a record, in the order in which they stand; any may be empty."""

    BETWEEN = 0  # before each record but the first
    OPENING = 1  # the key behind it
    BEFORE_VALUE = 2
    BEFORE_OFFSET = 3
    BEFORE_TIMESTAMP = 4
    BEFORE_HEADERS = 5  # only where there are some, which a bracket closes
    CLOSING = 6  # with Shown.ID the offset behind it
    LAST = 7


class Shown(enum.IntFlag):
    """What of a record is written."""

    KEY = 1
    VALUE = 2
    OFFSET = 4
    TIMESTAMP = 8
    HEADERS = 16
    ID = 32  # the offset once more, behind CLOSING


class PageCell(enum.IntEnum):
    """The state of a page; the first group is set by the caller for each page or batch."""

    KEY_FORMAT = 0
    VALUE_FORMAT = 1
    SHOWN = 2
    IS_LINES = 3  # stored JSON is copied without line ends
    FROM_OFFSET = 4  # records below are skipped
    END_OFFSET = 5  # records from here on are not written
    UNTIL_TIMESTAMP = 6  # the first record with this or a later one ends the page; largest: none
    MAX_BYTES = 7  # of keys and values; the first record is always written
    MAX_RECORDS = 8
    CHUNK_END = 9  # the output position from which on no record is begun
    BASE_OFFSET = 10  # of the batch
    BASE_TIMESTAMP = 11
    APPEND_TIMESTAMP = 12  # replaces every record's when IS_APPEND_TIME
    IS_APPEND_TIME = 13
    RECORDS_LEFT = 14  # of the batch; -1: its header was not read yet
    POSITION = 15  # of the next record in the batch
    OUT_POSITION = 16
    PAYLOAD_BYTES = 17
    COUNT = 18
    NEXT_OFFSET = 19  # behind the last record written or skipped
    SPANS = 20  # json format: rows of spans in use
    FAILED_OFFSET = 21
    FAILED_IS_VALUE = 22
    BATCH_POSITION = 23  # of the batch at hand
    TEXT_STARTS = 24  # of each PageText in the fixed texts, and where the last one ends


_ROW_CELLS = 9
FIRST_ROW_CELL = PageCell.TEXT_STARTS + len(PageText) + 1
PAGE_CELL_COUNT = FIRST_ROW_CELL + _ROW_CELLS
"""The cells of PageCell and behind them the fields of the record at hand."""

SPAN_BYTES = 32
"""Output bytes for each row of spans: most records have two in more than 64 bytes of text."""

SPAN_COLUMN_COUNT = 4

TEXT_PADDING = 8
"""Bytes behind the fixed texts, which are copied eight at a time."""
