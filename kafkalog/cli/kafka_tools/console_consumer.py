"""``kafkalog compat kafka-console-consumer``: the tool's options, lines, messages and exit status.

Owns the loop over the partitions and, with --group, the commits of what was printed. Source:
`org.apache.kafka.tools.consumer.ConsoleConsumer` 4.1; tests/oracle compares both.

Differs from Kafka: a topic that does not exist is an error at once (Kafka waits for it); with
--group it reads and commits all partitions without becoming a member of the group; topics that
match --include later are not read.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.kafka_tools.tool import (
    ToolCommand,
    ToolFailed,
    client_of_tool,
    is_true,
    key_values,
    matching,
    read_properties,
    report_ignored,
)
from kafkalog.client import OffsetOutOfRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkalog.client import Client, ConsumerRecord
    from kafkalog.client.records import Isolation

_FORMATTER = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
_WAIT_MS = 500
_COMMIT_SECONDS = 5.0  # Kafka's auto.commit.interval.ms
_APPLIED = frozenset({"auto.offset.reset", "enable.auto.commit", "group.id", "isolation.level"})

_PACKAGE = "org.apache.kafka.common.serialization."
_INTEGER_BYTES = {"ShortDeserializer": 2, "IntegerDeserializer": 4, "LongDeserializer": 8}

Partition = tuple[str, int]


@click.command("kafka-console-consumer", cls=ToolCommand)
@click.option("--topic", help="The topic.")
@click.option("--include", help="Topics by a regular expression or a list, instead of --topic.")
@click.option("--partition", type=int, help="Only this partition; from its end without --offset.")
@click.option("--offset", help="With --partition: earliest, latest, or a number.")
@click.option("--from-beginning", is_flag=True, help="From the first record of each partition.")
@click.option("--max-messages", type=int, default=-1, help="Stop after this many records.")
@click.option("--timeout-ms", type=int, default=-1, help="Stop after this time without a record.")
@click.option(
    "--property", "pairs", multiple=True, help="print.key=true, key.separator=: and so on."
)
@click.option("--formatter-config", help="File of such properties; --property takes precedence.")
@click.option("--formatter", default=_FORMATTER, help="Only Kafka's default is supported.")
@click.option("--key-deserializer", help="Kafka's class for String, Short, Integer or Long.")
@click.option("--value-deserializer", help="The same, for values.")
@click.option("--isolation-level", help="read_committed, or read_uncommitted, the default.")
@click.option(
    "--group", help="Start at the committed offsets of this group; commit what was printed."
)
@click.option(
    "--consumer-property", "consumer_pairs", multiple=True, help="group.id, auto.offset.reset."
)
@click.option("--skip-message-on-error", is_flag=True, help="Skip records that cannot be shown.")
@click.option("--enable-systest-events", is_flag=True, help="Print shutdown_complete at the end.")
@client_of_tool("--consumer.config")
def console_consumer(
    client: Client,
    **options: Any,  # noqa: ANN401 - click gives them by name
) -> None:
    """As kafka-console-consumer.sh.

    Example: kafkalog compat kafka-console-consumer --bootstrap-server localhost:8082
    --topic orders --from-beginning --timeout-ms 1000
    """
    consumer = _Consumer(client, options)
    try:
        try:
            consumer.run()
        finally:
            consumer.commit()
    except UnreadableField as error:
        raise ToolFailed(f"Unknown error when running consumer: {error}") from error
    except BrokenPipeError:
        click.echo("Unable to write to standard out, closing consumer.", err=True)
    finally:
        click.echo(f"Processed a total of {consumer.count} messages", err=True)
        if options["enable_systest_events"]:
            click.echo("shutdown_complete")


def _isolation(text: str | None) -> Isolation:
    if text in (None, "read_uncommitted"):
        return "read_uncommitted"
    if text == "read_committed":
        return "read_committed"
    raise ToolFailed(f"isolation.level is read_committed or read_uncommitted, not {text}")


def _start(options: dict[str, Any], properties: dict[str, str]) -> tuple[int | str, str]:
    """Where a partition begins, and where to continue if its offset is not in the log.

    The first is earliest, latest or a number, the second earliest or latest. Raises ToolFailed.
    """
    text, from_beginning = options["offset"], options["from_beginning"]
    reset = properties.get("auto.offset.reset", "earliest" if from_beginning else "latest")
    if from_beginning and reset != "earliest":
        raise ToolFailed(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}',"
            " please remove one option"
        )
    if reset not in ("earliest", "latest"):
        raise ToolFailed(f"auto.offset.reset is earliest or latest, not {reset}")
    if text is None and options["partition"] is None:
        return reset, reset
    if text is None:
        return "earliest" if from_beginning else "latest", reset
    place = str(text).lower()
    if place in ("earliest", "latest"):
        return place, reset
    if not (text.isascii() and text.isdigit()):
        raise ToolFailed(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest',"
            " 'latest', or a non-negative long."
        )
    return int(text), reset


class _Consumer:
    """One run. ``positions``: of each partition the offset after the last printed record."""

    def __init__(self, client: Client, options: dict[str, Any]) -> None:
        """Raises ToolFailed in the tool's words and order."""
        topic, partition = options["topic"], options["partition"]
        if (topic is None) is (options["include"] is None):
            raise ToolFailed("Exactly one of --include/--topic is required. ")
        if partition is not None and topic is None:
            raise ToolFailed("The topic is required when partition is specified.")
        if partition is not None and options["from_beginning"] and options["offset"] is not None:
            raise ToolFailed("Options from-beginning and offset cannot be specified together.")
        if partition is None and options["offset"] is not None:
            raise ToolFailed("The partition is required when offset is specified.")
        properties = key_values(options["consumer_pairs"])
        report_ignored(properties, _APPLIED)
        group = options["group"] or properties.get("group.id")
        if group is not None and partition is not None:
            raise ToolFailed("Options group and partition cannot be specified together.")
        if options["formatter"] != _FORMATTER:
            raise ToolFailed(f"--formatter can be {_FORMATTER} only")
        # constant after construction
        self._client = client
        self._options = options
        self._start, self._reset = _start(options, properties)
        self._isolation = _isolation(
            options["isolation_level"] or properties.get("isolation.level")
        )
        self._group = group
        self._commits = is_true(properties, "enable.auto.commit", default=True)
        file = options["formatter_config"]
        shown = {} if file is None else read_properties(file)
        for name in ("key_deserializer", "value_deserializer"):
            if options[name]:
                shown[name.replace("_", ".")] = options[name]
        self._formatter = RecordFormatter({**shown, **key_values(options["pairs"])})
        # changed by the run
        self.count = 0
        self.positions: dict[Partition, int] = {}
        self._committed: dict[Partition, int] = {}
        self._committed_at = 0.0

    def run(self) -> None:
        """Until --max-messages were printed, none came in --timeout-ms, or indefinitely."""
        self.positions = self._begin()
        self._committed, self._committed_at = dict(self.positions), time.monotonic()
        last = time.monotonic()
        is_idle = False
        most, timeout_ms = self._options["max_messages"], self._options["timeout_ms"]
        while most < 0 or self.count < most:
            before = dict(self.positions)
            for partition in before:
                self._print_page(partition, is_idle)
            sys.stdout.buffer.flush()
            if not before:
                time.sleep(_WAIT_MS / 1000)  # no topic matches, so no fetch waits
            is_idle = self.positions == before
            now = time.monotonic()
            if not is_idle:
                last = now
            elif 0 <= timeout_ms < (now - last) * 1000:
                click.echo(
                    "Error processing message, terminating consumer process: \n"
                    "org.apache.kafka.common.errors.TimeoutException",
                    err=True,
                )
                return
            if now - self._committed_at >= _COMMIT_SECONDS:
                self.commit()

    def commit(self) -> None:
        """Commit what was printed since the last commit, if there is a group."""
        if self._group is not None and self._commits and self.positions != self._committed:
            self._client.commit_offsets(self._group, self.positions)
            self._committed = dict(self.positions)
        self._committed_at = time.monotonic()

    def _begin(self) -> dict[Partition, int]:
        """The start of each partition."""
        client, topic, number = self._client, self._options["topic"], self._options["partition"]
        if number is not None:
            partitions = [(topic, number)]
        else:
            include = self._options["include"]
            topics = [topic] if topic else matching(client.list_topics(), include)
            partitions = [
                (topic, int(entry["partition"]))
                for topic in topics
                for entry in client.partitions(topic)
            ]
        committed = {} if self._group is None else client.group_offsets(self._group)
        return {
            partition: committed[partition]
            if partition in committed
            else self._resolve(partition, self._start)
            for partition in partitions
        }

    def _resolve(self, partition: Partition, wanted: int | str) -> int:
        if isinstance(wanted, int):
            return wanted
        first, end = self._client.offset_range(*partition)
        return first if wanted == "earliest" else end

    def _print_page(self, partition: Partition, is_idle: bool) -> None:
        """Print what can be read now; wait for records if the last round found none."""
        from kafkalog.client.batches import consumer_records  # late: it compiles kernels

        wait_ms = max(_WAIT_MS // len(self.positions), 1) if is_idle else 0
        offset = self.positions[partition]
        try:
            fetched = self._client.fetch_batches(
                *partition, offset, max_wait_ms=wait_ms, isolation=self._isolation
            )
        except OffsetOutOfRange:
            self.positions[partition] = self._resolve(partition, self._reset)
            return
        stamps = _stamps(fetched.data)
        last_offset, timestamp_type = -1, ""
        for record in consumer_records(*partition, fetched.data, offset):
            while record.offset > last_offset:
                last_offset, timestamp_type = next(stamps)
            if self.count == self._options["max_messages"]:
                return
            self.count += 1
            try:
                line = self._formatter.line(record, timestamp_type)
            except UnreadableField as error:
                if not self._options["skip_message_on_error"]:
                    raise
                click.echo(f"Error processing message, skipping this message: {error}", err=True)
                line = b""
            sys.stdout.buffer.write(line)
            self.positions[partition] = record.offset + 1
        self.positions[partition] = fetched.position.next_offset


def _stamps(data: bytes) -> Iterator[tuple[int, str]]:
    """Last offset and timestamp type of each batch."""
    from kafkalog.format.records.record_batch import iterate_batches, timestamp_type_of

    for header, _ in iterate_batches(data):
        yield header.last_offset, _TIMESTAMP_TYPES[timestamp_type_of(header.attributes)]


# ---- a record as a line


class UnreadableField(Exception):
    """A key, value or header that its deserializer does not accept."""


def deserializer(name: str) -> Callable[[bytes], bytes]:
    """The function of Kafka's class: from bytes to the text of the value. Raises ToolFailed."""
    kind = name.removeprefix(_PACKAGE)
    if kind == "StringDeserializer":
        return lambda data: data.decode("utf-8", "replace").encode()
    if kind not in _INTEGER_BYTES:
        known = ", ".join(["StringDeserializer", *_INTEGER_BYTES])
        raise ToolFailed(f"The deserializer {name} is not one of {_PACKAGE}: {known}")
    size = _INTEGER_BYTES[kind]

    def number(data: bytes) -> bytes:
        if len(data) != size:
            raise UnreadableField(f"Size of data received by {kind} is not {size}")
        return str(int.from_bytes(data, "big", signed=True)).encode()

    return number


class RecordFormatter:
    """Makes the line that is printed of a record: which fields, between which separators. Pure.

    Separators and the text for null are bytes, as they are printed. Source:
    `org.apache.kafka.tools.consumer.DefaultMessageFormatter` 4.1, whose properties these are. The
    deserializers known here are those whose text is the same everywhere.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        """From the tool's properties. ToolFailed."""
        fields = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
        self.shown = {field for field in fields if is_true(properties, f"print.{field}")}
        if is_true(properties, "print.value", default=True):
            self.shown.add("value")

        def text(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        def named(name: str) -> Callable[[bytes], bytes]:
            return deserializer(properties[name]) if name in properties else lambda data: data

        self.key_separator = text("key.separator", "\t")
        self.line_separator = text("line.separator", "\n")
        self.headers_separator = text("headers.separator", ",")
        self.null_literal = text("null.literal", "null")
        self.of_key = named("key.deserializer")
        self.of_value = named("value.deserializer")
        self.of_header = named("headers.deserializer")

    def line(self, record: ConsumerRecord, timestamp_type: str) -> bytes:
        """The line with its separator; timestamp_type is Kafka's name. Raises UnreadableField."""
        fields = [part for name, part in self._fields(record, timestamp_type) if name in self.shown]
        return self.key_separator.join(fields) + self.line_separator if fields else b""

    def _fields(self, record: ConsumerRecord, timestamp_type: str) -> list[tuple[str, bytes]]:
        """All fields in the tool's order; only those that are shown are deserialized."""
        has_key, has_value = "key" in self.shown, "value" in self.shown
        headers = self._headers(record) if "headers" in self.shown else b""
        return [
            ("timestamp", f"{timestamp_type}:{record.timestamp_ms}".encode()),
            ("partition", f"Partition:{record.partition}".encode()),
            ("offset", f"Offset:{record.offset}".encode()),
            ("delivery", b"Delivery:NOT_PRESENT"),
            ("epoch", b"Epoch:NOT_PRESENT"),  # Kafka's tool does not pass the epoch on
            ("headers", headers),
            ("key", self.of_key(self._or_literal(record.key)) if has_key else b""),
            ("value", self.of_value(self._or_literal(record.value)) if has_value else b""),
        ]

    def _headers(self, record: ConsumerRecord) -> bytes:
        parts = (
            name.encode("utf-8", "surrogateescape") + b":" + self.of_header(self._or_literal(value))
            for name, value in record.headers
        )
        return self.headers_separator.join(parts) if record.headers else b"NO_HEADERS"

    def _or_literal(self, data: bytes | None) -> bytes:
        return self.null_literal if data is None else data
