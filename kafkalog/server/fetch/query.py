"""The parameters of a request for records: where to begin and end, and the format.

They are read and checked here; ``cursors_of`` resolves a start to an offset of each partition.
Owned by the event loop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.format.wire.record_text import offsets_by_partition, parse_event_id
from kafkalog.format.wire.record_writer import FIELDS, FORMATS, Bounds, RecordShape
from kafkalog.server.fetch.source import Cursor
from kafkalog.server.protocol.parameters import (
    ISOLATION,
    ChoiceParameter,
    IntegerParameter,
    TextParameter,
    TimeParameter,
    wrong_parameter,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import Isolation
    from kafkalog.server.api import Api
    from kafkalog.server.protocol.parameters import Parameter

ABSENT = -1
_UNBOUNDED = INT64_MAX
_OFFSET = re.compile("[0-9]{1,19}")
_POSITION = r"[0-9]{1,10}:[0-9]{1,19}"
_POSITIONS = re.compile(f"{_POSITION}(?:,{_POSITION})*")
_NUMBERS = re.compile(r"[0-9]{1,10}(?:,[0-9]{1,10})*")
_POSITIONS_SCHEMA = {"type": "string", "pattern": f"^{_POSITION}(,{_POSITION})*$"}
_FORMAT_CHOICES = {name: name for name in FORMATS}

OFFSET = IntegerParameter(
    "offset",
    "Start: the first record wanted.",
    ABSENT,
    advice=" from=earliest starts at the first record; offsets?spec=earliest is its offset.",
)
OFFSETS = TextParameter(
    "offset",
    "Start: the first record wanted of each partition, <partition>:<offset>,...; these partitions "
    "are read.",
    schema=_POSITIONS_SCHEMA,
)
TIMESTAMP = TimeParameter(
    "timestamp",
    "Start: the first record at or after this time, else the end. ms since 1970 or ISO-8601.",
)
TAIL = IntegerParameter("tail", "Start: so many offsets before the end of each partition.", ABSENT)
FROM: ChoiceParameter[str] = ChoiceParameter(
    "from", "Start: where the log begins or ends.", {"earliest": "earliest", "latest": "latest"}, ""
)
UNTIL_OFFSET = IntegerParameter("until_offset", "End before this offset.", _UNBOUNDED)
UNTIL_OFFSETS = TextParameter(
    "until_offset",
    "End of a partition before this offset, <partition>:<offset>,...",
    schema=_POSITIONS_SCHEMA,
)
UNTIL_TIMESTAMP = TimeParameter(
    "until_timestamp", "End of a partition before its first record at or after this time."
)
MAX_RECORDS = IntegerParameter("max_records", "End after so many records.", _UNBOUNDED, least=1)
MAX_BYTES = IntegerParameter(
    "max_bytes",
    "End after so many bytes of keys and values, but at least one record. A page: 1 MiB.",
    ABSENT,
)
MAX_WAIT_MS = IntegerParameter(
    "max_wait_ms",
    "How long to wait for a record when there is none: 0, for text/event-stream without end.",
    ABSENT,
)
MIN_BYTES = IntegerParameter(
    "min_bytes", "Only of a page: it waits until so many bytes of the log are there.", 1
)
KEY_FORMAT: ChoiceParameter[str] = ChoiceParameter(
    "key_format", "How keys are shown: a string, stored JSON, base64.", _FORMAT_CHOICES, "text"
)
VALUE_FORMAT: ChoiceParameter[str] = ChoiceParameter(
    "value_format", "How values are shown: stored JSON, a string, base64.", _FORMAT_CHOICES, "json"
)
_FIELD = f"(?:{'|'.join(FIELDS)})"
_SHOWN_FIELDS = re.compile(f"{_FIELD}(?:,{_FIELD})*")
SHOWN_FIELDS = TextParameter(
    "fields",
    f"What is shown of a record, of {','.join(FIELDS)}: all of it.",
    schema={"type": "string", "pattern": f"^{_FIELD}(,{_FIELD})*$"},
)
PARTITIONS = TextParameter(
    "partitions",
    "The partitions that are read, 0,2,...: all.",
    schema={"type": "string", "pattern": "^[0-9]{1,9}(,[0-9]{1,9})*$"},
)

_COMMON: tuple[Parameter, ...] = (
    TIMESTAMP,
    TAIL,
    FROM,
    UNTIL_TIMESTAMP,
    MAX_RECORDS,
    MAX_BYTES,
    MAX_WAIT_MS,
    MIN_BYTES,
    KEY_FORMAT,
    VALUE_FORMAT,
    SHOWN_FIELDS,
    ISOLATION,
)
OF_ONE: tuple[Parameter, ...] = (OFFSET, UNTIL_OFFSET, *_COMMON)
OF_SEVERAL: tuple[Parameter, ...] = (OFFSETS, UNTIL_OFFSETS, PARTITIONS, *_COMMON)
_STARTS = ("offset", "timestamp", "tail", "from")


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Everything but the partitions. ``max_bytes`` and ``max_wait_ms``: ABSENT when not said."""

    start: str  # one of _STARTS
    timestamp_ms: int
    tail: int
    is_from_earliest: bool
    until_timestamp_ms: int
    max_records: int
    max_bytes: int
    max_wait_ms: int
    min_bytes: int
    shape: RecordShape
    isolation: Isolation

    @staticmethod
    def read(request: web.Request) -> RecordQuery:
        """ApiError 40005."""
        starts = [name for name in _STARTS if name in request.query]
        if len(starts) != 1:
            raise wrong_parameter("offset", f"Give one of {', '.join(_STARTS)}.")
        until_ms = UNTIL_TIMESTAMP.read(request)
        fields = SHOWN_FIELDS.read(request)
        if fields is not None and not _SHOWN_FIELDS.fullmatch(fields):
            raise wrong_parameter("fields", f"fields are some of {','.join(FIELDS)}.")
        return RecordQuery(
            start=starts[0],
            timestamp_ms=TIMESTAMP.read(request) or 0,
            tail=TAIL.read(request),
            is_from_earliest=FROM.read(request) == "earliest",
            until_timestamp_ms=_UNBOUNDED if until_ms is None else until_ms,
            max_records=MAX_RECORDS.read(request),
            max_bytes=MAX_BYTES.read(request),
            max_wait_ms=MAX_WAIT_MS.read(request),
            min_bytes=MIN_BYTES.read(request),
            shape=RecordShape(
                KEY_FORMAT.read(request),
                VALUE_FORMAT.read(request),
                frozenset(FIELDS if fields is None else fields.split(",")),
            ),
            isolation=ISOLATION.read(request),
        )

    @property
    def is_unbounded(self) -> bool:
        """Whether no bound but an until_offset ends it."""
        others = (self.max_records, self.until_timestamp_ms)
        return self.max_bytes == ABSENT and others == (_UNBOUNDED, _UNBOUNDED)

    def bounds(self, max_bytes: int) -> Bounds:
        """What a writer has to keep."""
        return Bounds(self.max_records, max_bytes, self.until_timestamp_ms)


def last_seen_of(request: web.Request, partitions: Sequence[int]) -> dict[int, int]:
    """Where a client that reconnects continues, by partition: its Last-Event-ID. ApiError 40005.

    Of a stream of these partitions; it may name others too, which are read no more.
    """
    text = request.headers.get("Last-Event-ID", "").strip()
    if not text:
        return {}
    positions = parse_event_id(text)
    if positions is None:
        raise wrong_parameter(
            "Last-Event-ID",
            "Last-Event-ID is <partition>:<offset>,... as events have it; without it the query's "
            "start counts.",
        )
    if positions.keys().isdisjoint(partitions):
        raise wrong_parameter(
            "Last-Event-ID", "Last-Event-ID names no partition that is read here: it is another's."
        )
    return positions


def positions_of(parameter: TextParameter, request: web.Request) -> dict[int, int]:
    """Offsets by partition; empty when the parameter is absent. ApiError 40005."""
    text = parameter.read(request)
    if text is None:
        return {}
    found = offsets_by_partition(text) if _POSITIONS.fullmatch(text) else None
    if found is not None:
        return found
    form = f"{parameter.name} is <partition>:<offset>,... with each partition once"
    hint = f": of partition 0 it is {parameter.name}=0:{text}" if _OFFSET.fullmatch(text) else ""
    raise wrong_parameter(parameter.name, f"{form}{hint}.")


def partitions_of(request: web.Request) -> list[int] | None:
    """The partitions named, rising; None for all. ApiError 40005."""
    text = PARTITIONS.read(request)
    if text is None:
        return None
    numbers = sorted(map(int, text.split(","))) if _NUMBERS.fullmatch(text) else []
    if not numbers or len(set(numbers)) < len(numbers) or numbers[-1] > INT32_MAX:
        raise wrong_parameter("partitions", "partitions are numbers, 0,2,..., each of them once.")
    return numbers


async def cursors_of(
    api: Api,
    topic: str,
    query: RecordQuery,
    partitions: Sequence[int],
    *,
    offsets: dict[int, int],
    seen: dict[int, int],
    until: dict[int, int],
) -> list[Cursor]:
    """A cursor for each partition at its start: as ``seen``, else of ``offsets``, else the query's.

    Partitions above all that were seen have been added since: nothing of them was there to be
    passed by when the stream began at an end.
    UnknownTopic, UnknownPartition, NotReady, LogDirOffline, OffsetBelowLogStart, OffsetAboveLogEnd.
    """
    cursors, offsets = [], offsets | seen
    highest_seen = max(seen, default=INT32_MAX)
    for number in partitions:
        log = api.operations.partition_log(topic, number)
        position = offsets.get(number)
        if position is None:
            position = await _start(api, log, query, is_new=number > highest_seen)
        else:
            log.check_bounds(position)  # also where nothing is to be read
        cursors.append(Cursor(log.topic_partition, position, until.get(number)))
        cursors[-1].high_watermark = log.high_watermark
        cursors[-1].log_start_offset = log.log_start_offset
    return cursors


async def _start(api: Api, log: UnifiedLog, query: RecordQuery, *, is_new: bool) -> int:
    """The offset that a start other than an offset means now."""
    start, limit = log.log_start_offset, log.limit_of(query.isolation)
    if query.start == "tail":
        return start if is_new else max(start, limit - query.tail)
    if query.start == "from":
        return start if is_new or query.is_from_earliest else limit
    found = await api.offset_at(log, query.timestamp_ms, query.isolation)
    return limit if found is None else found.offset
