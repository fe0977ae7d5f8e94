"""The console's form that appends one record: key, value and headers as people type them."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from aiohttp import web

from kafkalog.broker.operations import Acks, Operations
from kafkalog.console.views.record import ProduceView, produce_view
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.records.batch_builder import RecordColumns
from kafkalog.log.values import LogAppendInfo
from kafkalog.server.api import api_of
from kafkalog.server.console.pages import FORMS, Done, form, page
from kafkalog.server.produce.append import (
    PartitionBatch,
    PartitionTarget,
    Terms,
    append_all,
    default_acks,
    make_batches,
    prepare_for,
)
from kafkalog.server.produce.json_body import DecodedRecords
from kafkalog.server.protocol.endpoint import Access, Routes
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.parameters import IntegerParameter, partition_number, topic_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROUTES = Routes("console", "/console/topics/{topic}")

MOST_BYTES = 3 << 20
"""Of the form: a text of 1 MiB, Kafka's default of max.message.bytes, with escapes."""
_HEADERS_MAX = 100
_HEADER_LINES_MAX = 1_000
_ABSENT = -1
_PARTITION = IntegerParameter("partition", "Of the record that the page links to.", _ABSENT)
_OFFSET = IntegerParameter("offset", "Of the record that the page links to.", _ABSENT, 0, INT64_MAX)
T = TypeVar("T")
_FIELDS = ("key_format", "key", "value_format", "value", "headers", "partition")


@page(
    ROUTES,
    "/produce",
    "consoleProduce",
    Access.WRITE_TOPIC,
    parameters=(_PARTITION, _OFFSET),
    can_refresh=False,
)
def produce(request: web.Request, operations: Operations) -> ProduceView:
    """Console: the form that appends a record; after that, where it is."""
    partition, offset = _PARTITION.read_or_none(request), _OFFSET.read_or_none(request)
    return produce_view(operations, topic_of(request), partition=partition, offset=offset)


def _again(
    request: web.Request, operations: Operations, fields: dict[str, str], refusal: str
) -> ProduceView:
    return produce_view(operations, topic_of(request), refusal=refusal, typed=fields)


@form(
    ROUTES,
    "/produce",
    "consoleProduceNow",
    Access.WRITE_TOPIC,
    _FIELDS,
    errors=(
        *(40002, 40401, 40402, 41301, 41304, 41305, 42211, 42212),
        *(50003, 50302, 50303, 50304, 50701, 50702),
    ),
    most_bytes=MOST_BYTES,
    again=_again,
)
async def produce_now(request: web.Request, fields: dict[str, str]) -> Done:
    """Console: append one record to a topic that exists.

    ``key_format`` text, json or base64, an empty key is no key; ``value_format`` also null.
    ``headers`` are lines of name: value. An empty ``partition``: by the key, else the next one.
    Line ends are those of Unix. An error names everything that is wrong. Pages of other origins are
    refused.
    """
    api, topic = api_of(request), topic_of(request)
    api.operations.partition_count(topic)  # UnknownTopic: the form creates none
    now_ms = api.operations.now_ms()
    partition, columns = await api.pools.console.run(FORMS, lambda: record_of(fields, now_ms))

    async def prepared(target: PartitionTarget) -> tuple[None, list[PartitionBatch]]:
        return None, make_batches(DecodedRecords(columns, None), target)

    acks = default_acks(api, topic, partition)
    # The page says where the record is, so it waits for that.
    terms = Terms(Acks.LEADER if acks is Acks.NONE else acks, partition)
    _, batches, opened = await prepare_for(api, topic, partition, prepared)
    ((number, _, outcome),) = await append_all(api, opened, batches, terms)
    address = f"/console/topics/{quote(topic, safe='')}/produce"
    if not isinstance(outcome, LogAppendInfo):
        raise outcome
    place = {"partition": number, "offset": outcome.first_offset}
    notice = f"Appended to partition {number} at offset {outcome.first_offset:,}."
    return Done(f"{address}?{urlencode(place)}", notice)


class _WrongField(Exception):
    """What was typed into one field means nothing; the words say why."""


def record_of(fields: Mapping[str, str], now_ms: int) -> tuple[int | None, RecordColumns]:
    """The chosen partition, None when none was, and the record that was typed.

    ApiError 40002 names every field that is wrong.
    """
    faults: list[str] = []

    def read(parse: Callable[..., T], *names: str) -> T | None:
        try:
            return parse(*(fields[name] for name in names))
        except _WrongField as fault:
            faults.append(str(fault))
            return None

    value = read(_value, "value", "value_format")
    key = read(_key, "key", "key_format")
    headers = read(_headers, "headers")
    partition = read(_partition, "partition")
    if faults:
        raise ApiError(40002, f"Nothing was appended: {'; '.join(faults)}.")
    return partition, RecordColumns.of([key], [value], now_ms, [headers] if headers else None)


def _partition(text: str) -> int | None:
    """None: none was chosen."""
    number = partition_number(text) if text else None
    if text and number is None:
        raise _WrongField("a partition is a number, or empty")
    return number


def _key(text: str, text_format: str) -> bytes | None:
    """The key; None of an empty field."""
    return _bytes(text, text_format, "key") if text else None


def _value(text: str, text_format: str) -> bytes | None:
    """The value; a text where null was chosen is wrong."""
    if text_format != "null":
        return _bytes(text, text_format, "value")
    if text:
        raise _WrongField("a null value has no text: empty the field")
    return None


def _bytes(text: str, text_format: str, name: str) -> bytes:
    """What was typed into a field, in its format."""
    text = text.replace("\r\n", "\n")  # a form sends these for every line end
    if text_format == "text":
        return text.encode()
    if text_format == "json":
        data = text.encode()
        try:
            msgspec.json.decode(data, type=msgspec.Raw)  # looked through, no objects are made
        except (msgspec.DecodeError, RecursionError) as error:
            raise _WrongField(f"the {name} is no JSON ({error})") from error
        return data
    if text_format == "base64":
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise _WrongField(f"the {name} is no base64 ({error})") from error
    raise _WrongField(f"{name}_format is text, json or base64")


def _headers(text: str) -> list[tuple[bytes, bytes | None]]:
    """A header a line, ``name: value``; empty lines do not count."""
    found: list[tuple[bytes, bytes | None]] = []
    wrong: list[int] = []
    too_many = f"{_HEADERS_MAX} headers at most"
    if text.count("\n") > _HEADER_LINES_MAX:
        raise _WrongField(too_many)
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not name.strip():
            wrong.append(number)
        found.append((name.strip().encode(), value.strip().encode()))
    if len(found) > _HEADERS_MAX:
        raise _WrongField(too_many)
    if wrong:
        lines = f"line {wrong[0]}" if len(wrong) == 1 else f"lines {', '.join(map(str, wrong))}"
        verb = "is" if len(wrong) == 1 else "are"
        raise _WrongField(f"{lines} of the headers {verb} not name: value")
    return found
