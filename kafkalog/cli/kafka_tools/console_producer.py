"""``kafkalog compat kafka-console-producer``: the tool's options, messages and exit status.

Owns how lines become batches: lines that arrive within ``--timeout`` share a batch, as with the
linger time of the tool's producer. Source: `org.apache.kafka.tools.ConsoleProducer` 4.1;
tests/oracle compares both.

As in Kafka, a record that was not appended is reported on standard error, and changes the status
only with --sync. Differs from Kafka: no stack trace follows a message, the records without a key in
a batch are appended to one partition, and batches have no producer id.
"""

from __future__ import annotations

import io
import queue
import re
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, TextIO

import click

from kafkalog.cli.arguments import IntRange
from kafkalog.cli.connection import message_of
from kafkalog.cli.kafka_tools.tool import (
    ToolCommand,
    ToolFailed,
    client_of_tool,
    is_true,
    key_values,
    read_properties,
    report_ignored,
    without_effect,
)
from kafkalog.client import ClientError, ProducerRecord
from kafkalog.client.produce import BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kafkalog.client import Client
    from kafkalog.client.records import Acks, CodecName, Headers

_LINE_READER = "org.apache.kafka.tools.LineMessageReader"
_ACKS: dict[str, Acks] = {"-1": "all", "all": "all", "1": "1", "0": "0"}
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_LINGER_MS = 1000
_QUEUED_LINES = 10_000
_NO_RETRIES = "requests are not repeated"


@click.command("kafka-console-producer", cls=ToolCommand)
@click.option("--topic", required=True, help="Topic to append to.")
@click.option("--sync", is_flag=True, help="One request per record; stop at the first failure.")
@click.option(
    "--compression-codec",
    "codec",
    is_flag=False,
    flag_value="gzip",
    default="none",
    type=click.Choice(_CODECS),
    help="Codec of the batches; without a value: gzip.",
)
@click.option("--batch-size", type=IntRange(min=0), help="Bytes of a batch.")
@click.option("--max-partition-memory-bytes", type=IntRange(min=0), help="Same as --batch-size.")
@click.option(
    "--timeout",
    "linger_ms",
    type=IntRange(min=0),
    help=f"How long a batch waits for more lines, in ms. Default: {_LINGER_MS}.",
)
@click.option("--request-required-acks", "acks", help="-1 or all, 1, 0. Default: -1.")
@click.option(
    "--property", "pairs", multiple=True, help="parse.key=true, key.separator=: and so on."
)
@click.option("--reader-config", help="File of such properties; --property takes precedence.")
@click.option(
    "--producer-property", "producer_pairs", multiple=True, help="acks, linger.ms, batch.size."
)
@click.option("--line-reader", default=_LINE_READER, help="Only Kafka's default is supported.")
@without_effect(
    "--message-send-max-retries", "--retry-backoff-ms", "--request-timeout-ms", "--max-block-ms",
    reason=_NO_RETRIES,
)  # fmt: skip
@without_effect("--metadata-expiry-ms", reason="there is one broker")
@without_effect(
    "--max-memory-bytes", "--socket-buffer-size", reason="the client does not have this buffer"
)
@client_of_tool("--producer.config")
def console_producer(
    client: Client,
    topic: str,
    sync: bool,
    codec: CodecName,
    **options: Any,  # noqa: ANN401 - click gives them by name
) -> None:
    """As kafka-console-producer.sh: each line of standard input is a record.

    Example: echo k:v | kafkalog compat kafka-console-producer --bootstrap-server localhost:8082
    --topic orders --property parse.key=true --property key.separator=:
    """
    if options["line_reader"] != _LINE_READER:
        raise ToolFailed(f"--line-reader can be {_LINE_READER} only")
    producer = key_values(options["producer_pairs"])
    report_ignored(producer, ("acks", "linger.ms", "batch.size"))
    acks = options["acks"] or producer.get("acks", "-1")
    if acks not in _ACKS:
        raise ToolFailed(f"Invalid value {acks} for configuration acks: it is one of -1, all, 1, 0")
    linger_ms = _number(options["linger_ms"], producer.get("linger.ms"), _LINGER_MS)
    sizes = (options["max_partition_memory_bytes"], options["batch_size"])
    given_size = next((size for size in sizes if size is not None), None)
    batch_bytes = max(_number(given_size, producer.get("batch.size"), BATCH_BYTES), 1)
    file = options["reader_config"]
    properties = {} if file is None else read_properties(file)
    reader = LineReader({**properties, **key_values(options["pairs"])})
    # Lines end at a line feed, a carriage return or both, as for Java's reader.
    text = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="replace", newline=None)
    lines = _Lines(reader, text)
    groups = lines.one_by_one() if sync else lines.groups(linger_ms / 1000, batch_bytes)
    for group in groups:
        try:
            client.produce(topic, group, acks=_ACKS[acks], codec=codec, batch_bytes=batch_bytes)
        except ClientError as error:
            if sync:
                raise ToolFailed(message_of(error)) from error
            appended = sum(each.last_offset - each.base_offset + 1 for each in error.appended)
            count = len(group) - appended
            reason = message_of(error)
            click.echo(f"Error when sending {count} messages to topic {topic}: {reason}", err=True)


def _number(option: int | None, text: str | None, default: int) -> int:
    """The option, otherwise the property, otherwise the default."""
    if option is not None:
        return option
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise ToolFailed(f"Not a number: {text}")
    return int(text)


class _Lines:
    """Records of a text in groups; a thread reads it, so that a group need not wait for a line."""

    def __init__(self, reader: LineReader, text: TextIO) -> None:
        self._reader = reader
        self._text = text
        self._has_prompt = sys.stdin.isatty() and sys.stdout.isatty()
        self._read: queue.Queue[ProducerRecord | UnreadableLine | None] = queue.Queue(_QUEUED_LINES)

    def one_by_one(self) -> Iterator[list[ProducerRecord]]:
        """Groups of one record. Raises UnreadableLine at the first such line."""
        return ([record] for record in self._records())

    def groups(self, linger_seconds: float, batch_bytes: int) -> Iterator[list[ProducerRecord]]:
        """Groups of what arrives in the time or fills the bytes. UnreadableLine."""
        threading.Thread(target=self._feed, name="lines", daemon=True).start()
        while (item := self._read.get()) is not None:
            group: list[ProducerRecord] = []
            deadline = time.monotonic() + linger_seconds
            size = 0
            while item is not None and not isinstance(item, UnreadableLine):
                group.append(item)
                size += len(item.value or "") + len(item.key or "")
                wait = deadline - time.monotonic()
                if size >= batch_bytes:
                    break
                try:
                    item = self._read.get(timeout=wait) if wait > 0 else self._read.get_nowait()
                except queue.Empty:
                    break
            if group:
                yield group
            if isinstance(item, UnreadableLine):
                raise item
            if item is None:
                return

    def _feed(self) -> None:
        try:
            for record in self._records():
                self._read.put(record)
        except UnreadableLine as error:
            self._read.put(error)
        else:
            self._read.put(None)

    def _records(self) -> Iterator[ProducerRecord]:
        self._prompt()
        for number, line in enumerate(self._text, 1):
            yield self._reader.record(line.removesuffix("\n"), number)
            self._prompt()

    def _prompt(self) -> None:
        if self._has_prompt:
            click.echo(">", nl=False)


# ---- a line as a record


class UnreadableLine(ToolFailed):
    """A line that is not a record, or properties that contradict each other."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"org.apache.kafka.common.KafkaException: {reason}")


class LineReader:
    """Makes a record of a line of text: headers, key and value between separators. Pure.

    null_marker  the text that means null; None: no text does

    Source: `org.apache.kafka.tools.LineMessageReader` 4.1, whose properties and messages these are.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        """From the tool's properties. UnreadableLine when two separators are the same."""
        self.parses_key = is_true(properties, "parse.key")
        self.parses_headers = is_true(properties, "parse.headers")
        self.key_separator = properties.get("key.separator", "\t")
        self.headers_delimiter = properties.get("headers.delimiter", "\t")
        self.headers_separator = properties.get("headers.separator", ",")
        self.headers_key_separator = properties.get("headers.key.separator", ":")
        self.null_marker = properties.get("null.marker")
        self.ignores_errors = is_true(properties, "ignore.error")
        self._check()

    def _check(self) -> None:
        texts = {
            "headers.delimiter": self.headers_delimiter,
            "headers.separator": self.headers_separator,
            "headers.key.separator": self.headers_key_separator,
            "null.marker": self.null_marker,
            "key.separator": self.key_separator,
        }
        delimiter, separator, header_key_separator, marker, key_separator = texts
        for first, second in (
            (delimiter, separator),
            (delimiter, header_key_separator),
            (separator, header_key_separator),
            *((marker, each) for each in (key_separator, separator, delimiter)),
            (marker, header_key_separator),
        ):
            if texts[first] == texts[second]:
                raise UnreadableLine(f"{first} and {second} may not be equal")
        try:
            re.compile(self.headers_separator)
        except re.error as error:
            raise UnreadableLine(f"headers.separator is not an expression: {error}") from error

    def record(self, line: str, number: int) -> ProducerRecord:
        """Of the line with this number, counted from 1. UnreadableLine."""
        headers: str | None = None
        key: str | None = None
        rest = line
        if self.parses_headers:
            delimiter = (self.headers_delimiter, "headers delimiter")
            headers, rest = self._cut(line, rest, delimiter, number)
        if self.parses_key:
            key, rest = self._cut(line, rest, (self.key_separator, "key separator"), number)
        return ProducerRecord(
            self._or_null(rest), self._or_null(key), self._headers(headers, number)
        )

    def _cut(
        self, line: str, rest: str, separator: tuple[str, str], number: int
    ) -> tuple[str | None, str]:
        """The text before the separator, and after it."""
        before, found, after = rest.partition(separator[0])
        if found:
            return before, after
        if self.ignores_errors:
            return None, rest
        raise UnreadableLine(f"No {separator[1]} found on line number {number}: '{line}'")

    def _or_null(self, text: str | None) -> str | None:
        return None if text == self.null_marker else text

    def _headers(self, text: str | None, number: int) -> Headers:
        if text is None or text == self.null_marker:
            return ()
        parts = re.split(self.headers_separator, text)
        while len(parts) > 1 and not parts[-1]:
            parts.pop()  # as Java splits
        return tuple(self._header(part, number) for part in parts)

    def _header(self, pair: str, number: int) -> tuple[str, bytes | None]:
        name, found, value = pair.partition(self.headers_key_separator)
        if not found:
            if self.ignores_errors:
                return pair, None
            raise UnreadableLine(
                f"No header key separator found in pair '{pair}' on line number {number}"
            )
        if name == self.null_marker:
            raise UnreadableLine(
                f"Header keys should not be equal to the null marker '{name}' as they can't be null"
            )
        return name, None if value == self.null_marker else value.encode()
