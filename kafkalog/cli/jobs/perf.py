"""``kafkalog perf produce`` and ``perf consume``: how fast a daemon appends and returns records.

A request to append carries one batch, and a few are in flight, so that batches are made while
others are appended, all by one thread. The latency of a record is that of its batch, from the time
when the batch was begun until its answer was seen, which is looked for whenever the next batch is
ready. A read has one request in flight. The lines have the form of
Kafka's kafka-producer-perf-test and kafka-consumer-perf-test 4.1: MB are 2^20 bytes, and the time
of a rebalance is the time in which the partitions and their start offsets were found.
"""

from __future__ import annotations

import datetime
import itertools
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kafkalog.cli.arguments import IntRange, Milliseconds, Size, topic_argument
from kafkalog.cli.connection import with_client_and_document
from kafkalog.cli.output import is_printed
from kafkalog.cli.produce import Outcomes
from kafkalog.client import Client, ClientError, ProducerRecord
from kafkalog.client.records import RECORD_OVERHEAD_BYTES
from kafkalog.env.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafkalog.client.client import Begun
    from kafkalog.client.records import Acks, AppendReceipt, CodecName
    from kafkalog.env.clock import Clock

BATCH_BYTES = 16_384  # Kafka's batch.size
IN_FLIGHT = 5  # Kafka's max.in.flight.requests.per.connection
REPORTING_INTERVAL_MS = 5000
_LINGERS_PER_SECOND = 100  # a low rate fills batches for at most 10 ms
_SAMPLES_MAX = 500_000
_PERCENTILES = (("50th", 0.5), ("95th", 0.95), ("99th", 0.99), ("99.9th", 0.999))
_BLOCK_BYTES = 1 << 16
_NUMBER_BYTES = 8
_LOW_HALVES = 0x0F0F_0F0F_0F0F_0F0F
_LETTERS_A = 0x4141_4141_4141_4141
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_IDLE_MS = 10_000
_WAIT_MS = 100
_NS_PER_MS = 1_000_000
_MIB = 1024.0 * 1024.0
READ_HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec,"
    " rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


def per_second(amount: float, elapsed_ms: int) -> float:
    """A rate; 0 for a run that took no time."""
    return 1000.0 * amount / elapsed_ms if elapsed_ms else 0.0


# ---- produce


@dataclass(slots=True)
class _Window:
    """Sums of the records that were answered since ``start_ms``."""

    start_ms: int
    count: int = 0
    size_bytes: int = 0
    latency_ms: int = 0
    max_latency_ms: int = 0

    def add(self, count: int, size_bytes: int, latency_ms: int) -> None:
        self.count += count
        self.size_bytes += size_bytes
        self.latency_ms += latency_ms * count
        self.max_latency_ms = max(self.max_latency_ms, latency_ms)

    @property
    def average_ms(self) -> float:
        return self.latency_ms / self.count if self.count else 0.0

    def line(self, now_ms: int) -> str:
        elapsed_ms = now_ms - self.start_ms
        return (
            f"{self.count} records sent, {per_second(self.count, elapsed_ms):.1f} records/sec"
            f" ({per_second(self.size_bytes, elapsed_ms) / _MIB:.2f} MB/sec),"
            f" {self.average_ms:.1f} ms avg latency, {self.max_latency_ms:.1f} ms max latency."
        )


class AppendStats:
    """Of a run of ``record_count`` records that began at ``start_ms``.

    At most _SAMPLES_MAX latencies are kept for the percentiles, evenly chosen.
    """

    def __init__(self, record_count: int, start_ms: int) -> None:
        self._sampling = record_count // min(record_count, _SAMPLES_MAX)
        self._latencies: list[int] = []
        self._all = _Window(start_ms)
        self._window = _Window(start_ms)

    def add(self, count: int, size_bytes: int, latency_ms: int, now_ms: int) -> str | None:
        """Count records that were answered together; the line of a window that has ended."""
        first = -self._all.count % self._sampling
        self._latencies += [latency_ms] * len(range(first, count, self._sampling))
        self._all.add(count, size_bytes, latency_ms)
        self._window.add(count, size_bytes, latency_ms)
        if now_ms - self._window.start_ms < REPORTING_INTERVAL_MS:
            return None
        line = self._window.line(now_ms)
        self._window = _Window(now_ms)
        return line

    def total(self, now_ms: int) -> dict[str, Any]:
        """The whole run as JSON values."""
        found = self._all
        elapsed_ms = now_ms - found.start_ms
        latencies = sorted(self._latencies) or [0]
        return {
            "records": found.count,
            "bytes": found.size_bytes,
            "elapsed_ms": elapsed_ms,
            "records_per_second": per_second(found.count, elapsed_ms),
            "mb_per_second": per_second(found.size_bytes, elapsed_ms) / _MIB,
            "latency_ms": {
                "avg": found.average_ms,
                "max": found.max_latency_ms,
                **{name: latencies[int(share * len(latencies))] for name, share in _PERCENTILES},
            },
        }


def total_line(total: dict[str, Any]) -> str:
    """``AppendStats.total`` as the last line of the text."""
    latency = total["latency_ms"]
    percentiles = ", ".join(f"{latency[name]} ms {name}" for name, _ in _PERCENTILES)
    return (
        f"{total['records']} records sent, {total['records_per_second']:.1f} records/sec"
        f" ({total['mb_per_second']:.2f} MB/sec), {latency['avg']:.2f} ms avg latency,"
        f" {latency['max']:.2f} ms max latency, {percentiles}."
    )


class _Sent(NamedTuple):
    """The records of one request."""

    appended: Begun[tuple[AppendReceipt, ...]]
    record_count: int
    size_bytes: int
    began_ms: int


@dataclass(frozen=True, slots=True)
class AppendLoad:
    """What to append. ``payloads`` gives the values, all of one size.

    records_per_second  None: as many as the daemon takes
    """

    topic: str
    record_count: int
    payloads: Iterator[bytes]
    records_per_second: float | None = None
    batch_bytes: int = BATCH_BYTES
    acks: Acks | None = None
    codec: CodecName = "none"
    in_flight: int = IN_FLIGHT

    def run(self, client: Client, clock: Clock, on_line: Callable[[str], None]) -> AppendStats:
        """``on_line`` gets the line of each window. Raises ClientError at the first failure.

        Before that, ``on_line`` gets what became of the records, also of those in flight.
        """
        run = _Run(self, client, clock, on_line)
        try:
            run.to_the_end()
        except (ClientError, KeyboardInterrupt) as failure:
            if run.begun_count:
                on_line(str(run.settled(failure)))
            raise
        return run.stats

    def begin(
        self, client: Client, partition: int, values: list[bytes]
    ) -> Begun[tuple[AppendReceipt, ...]]:
        """One request."""
        return client.begin(
            Client.produce(
                self.topic,
                list(map(ProducerRecord, values)),
                partition=partition,
                acks=self.acks,
                codec=self.codec,
                batch_bytes=self.batch_bytes,
            )
        )

    def batch(self, most: int) -> list[bytes]:
        """The next values: one full batch, or as many as a low rate allows; at least one."""
        if self.records_per_second is not None:
            most = min(most, max(int(self.records_per_second / _LINGERS_PER_SECOND), 1))
        first = next(self.payloads)
        full = self.batch_bytes // (len(first) + RECORD_OVERHEAD_BYTES)
        return [first, *itertools.islice(self.payloads, max(min(most, full) - 1, 0))]


class _Run:
    """One run of an ``AppendLoad``: what was begun and what was answered."""

    def __init__(
        self, load: AppendLoad, client: Client, clock: Clock, on_line: Callable[[str], None]
    ) -> None:
        self._load, self._client, self._clock, self._on_line = load, client, clock, on_line
        self._start_ns = clock.monotonic_ns()
        self._sent = deque[_Sent]()
        self.begun_count = 0  # records of requests that were begun
        self._outcomes = Outcomes(is_answered=load.acks != "0")
        self.stats = AppendStats(load.record_count, self._start_ns // _NS_PER_MS)

    def to_the_end(self) -> None:
        """Raises ClientError."""
        load, clock = self._load, self._clock
        entries = self._client.partitions(load.topic)
        served = [int(each["partition"]) for each in entries if "error_code" not in each]
        partitions = itertools.cycle(served or [0])
        while self.begun_count < load.record_count:
            began_ms = clock.monotonic_ns() // _NS_PER_MS
            values = load.batch(load.record_count - self.begun_count)
            self.begun_count += len(values)
            appended = load.begin(self._client, next(partitions), values)
            self._sent.append(_Sent(appended, len(values), sum(map(len, values)), began_ms))
            self._take_in(load.in_flight - 1)
            if load.records_per_second is not None:  # until these are due
                due_ns = self._start_ns + int(self.begun_count * 1e9 / load.records_per_second)
                if due_ns > clock.monotonic_ns():
                    self._take_in(0)
                    clock.sleep(max(due_ns - clock.monotonic_ns(), 0) / 1e9)
        self._take_in(0)

    def _take_in(self, most: int) -> None:
        """Wait until at most so many are in flight; see what else was answered."""
        while self._sent and (len(self._sent) > most or self._sent[0].appended.is_answered):
            each = self._sent.popleft()
            self._take_answer(each)
            ended_ms = self._clock.monotonic_ns() // _NS_PER_MS
            latency_ms = ended_ms - each.began_ms
            line = self.stats.add(each.record_count, each.size_bytes, latency_ms, ended_ms)
            if line is not None:
                self._on_line(line)

    def _take_answer(self, each: _Sent) -> None:
        """Raises ClientError."""
        try:
            each.appended.result()
        except ClientError as error:
            self._outcomes.fail(error, each.record_count)
            raise
        self._outcomes.appended += each.record_count

    def settled(self, failure: ClientError | KeyboardInterrupt) -> Outcomes:
        """After a failure: what became of all records. Waits for the answers in flight.

        Not when the failure was that none came, nor after Ctrl-C: then only what is there counts.
        """
        outcomes = self._outcomes
        waits = isinstance(failure, ClientError) and failure.status is not None
        for each in self._sent:
            if waits or each.appended.is_answered:
                with suppress(ClientError):
                    self._take_answer(each)
        outcomes.unknown = self.begun_count - outcomes.appended - outcomes.refused
        return outcomes


def random_payloads(size_bytes: int) -> Iterator[bytes]:
    """Random letters from A to P, the same in every run; made for many values at once."""
    import numpy as np

    generator = np.random.SFC64(0)
    values_in_block = max(_BLOCK_BYTES // size_bytes, 1)
    numbers_in_block = -(-values_in_block * size_bytes // _NUMBER_BYTES)
    while True:
        numbers = generator.random_raw(numbers_in_block)
        numbers &= _LOW_HALVES
        numbers += _LETTERS_A
        block = numbers.tobytes()
        for start in range(0, values_in_block * size_bytes, size_bytes):
            yield block[start : start + size_bytes]


@click.command()
@topic_argument()
@click.option(
    "--num-records", type=IntRange(min=1), required=True, help="Number of records to append."
)
@click.option("--record-size", type=Size(min=1), default=100, help="Bytes of each value.")
@click.option(
    "--throughput",
    type=click.FloatRange(min=0, min_open=True),
    help="Records per second. Default: as many as the daemon takes.",
)
@click.option(
    "--batch-size", type=Size(min=1), default=BATCH_BYTES, help="Bytes of the batch in a request."
)
@click.option("--in-flight", type=IntRange(min=1), default=IN_FLIGHT, help="Requests at a time.")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), help="Default: the daemon's.")
@click.option(
    "--codec", type=click.Choice(_CODECS), default="none", help="How batches are compressed."
)
@with_client_and_document
def produce(
    topic: str,
    num_records: int,
    record_size: int,
    throughput: float | None,
    batch_size: int,
    in_flight: int,
    acks: Acks | None,
    codec: CodecName,
    client: Client,
    output: str,
) -> None:
    """Append random records, some requests at a time, and print rates and latencies.

    Prints a line every five seconds (on standard error with --output json or yaml), then the
    totals. MB are 2^20 bytes. Ends at the first failure, and says what became of the requests in
    flight.

    Example: kafkalog perf produce orders --num-records 100000 --record-size 200
    """
    clock = SystemClock()
    load = AppendLoad(
        topic,
        num_records,
        random_payloads(record_size),
        throughput,
        batch_size,
        acks,
        codec,
        in_flight,
    )
    is_document = output in ("json", "yaml")
    stats = load.run(client, clock, lambda line: click.echo(line, err=is_document))
    total = stats.total(clock.monotonic_ns() // _NS_PER_MS)
    if not is_printed(output, total):
        click.echo(total_line(total))


# ---- consume


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A run. Wall times; ``is_complete``: as many records came as were asked for."""

    start_ms: int
    end_ms: int
    join_ms: int
    record_count: int
    size_bytes: int
    is_complete: bool
    is_interrupted: bool = False

    @property
    def elapsed_ms(self) -> int:
        """From begin to end."""
        return self.end_ms - self.start_ms

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "records": self.record_count,
            "bytes": self.size_bytes,
            "elapsed_ms": self.elapsed_ms,
            "records_per_second": per_second(self.record_count, self.elapsed_ms),
            "mb_per_second": per_second(self.size_bytes / _MIB, self.elapsed_ms),
            "is_complete": self.is_complete,
        }

    def line(self) -> str:
        """The values below READ_HEADER."""
        mib = self.size_bytes / _MIB
        fetch_ms = self.elapsed_ms - self.join_ms
        numbers = (
            f"{mib:.4f}",
            f"{per_second(mib, self.elapsed_ms):.4f}",
            str(self.record_count),
            f"{per_second(self.record_count, self.elapsed_ms):.4f}",
            str(self.join_ms),
            str(fetch_ms),
            f"{per_second(mib, fetch_ms):.4f}",
            f"{per_second(self.record_count, fetch_ms):.4f}",
        )
        return ", ".join((_local_time(self.start_ms), _local_time(self.end_ms), *numbers))


def _local_time(wall_ms: int) -> str:
    """In the time zone of the machine."""
    moment = datetime.datetime.fromtimestamp(wall_ms // 1000).astimezone()
    return f"{moment:%Y-%m-%d %H:%M:%S}:{wall_ms % 1000:03d}"


@dataclass(frozen=True, slots=True)
class ReadLoad:
    """What to read. ``timeout_ms`` without a record ends the run. ``max_bytes`` of an answer."""

    topic: str
    record_count: int
    timeout_ms: int
    from_latest: bool = False
    max_bytes: int = 1 << 20

    def run(self, client: Client, clock: Clock) -> ReadResult:
        """Ends at an interrupt, too. Raises ClientError."""
        start_ms, start_ns = clock.wall_ms(), clock.monotonic_ns()

        def now_ms() -> int:
            return start_ms + (clock.monotonic_ns() - start_ns) // _NS_PER_MS

        bound = 1 if self.from_latest else 0
        numbers = [int(entry["partition"]) for entry in client.partitions(self.topic)]
        positions = {each: client.offset_range(self.topic, each)[bound] for each in numbers}
        join_ms = now_ms() - start_ms
        count = size = 0
        last_ms = now_ms()
        is_idle = is_interrupted = False
        try:
            while count < self.record_count and now_ms() - last_ms <= self.timeout_ms:
                before = count
                for partition, offset in positions.items():
                    wait_ms = max(_WAIT_MS // len(positions), 1) if is_idle else 0
                    page = client.fetch(
                        self.topic, partition, offset, max_bytes=self.max_bytes, max_wait_ms=wait_ms
                    )
                    positions[partition] = page.position.next_offset
                    count += len(page.records)
                    size += sum(len(one.key or b"") + len(one.value or b"") for one in page.records)
                is_idle = count == before
                if not is_idle:
                    last_ms = now_ms()
        except KeyboardInterrupt:
            is_interrupted = True
        is_complete = count >= self.record_count
        return ReadResult(start_ms, now_ms(), join_ms, count, size, is_complete, is_interrupted)


@click.command()
@topic_argument()
@click.option("--messages", type=IntRange(min=1), required=True, help="Number of records to read.")
@click.option("--from-latest", is_flag=True, help="Read only records appended from now on.")
@click.option(
    "--timeout",
    "timeout_ms",
    type=Milliseconds(min=0),
    default=_IDLE_MS,
    help="Stop after this many ms, or 30s, without a record.",
)
@click.option("--fetch-size", type=Size(min=1), default=1 << 20, help="Most bytes of an answer.")
@with_client_and_document
def consume(
    topic: str,
    messages: int,
    from_latest: bool,
    timeout_ms: int,
    fetch_size: int,
    client: Client,
    output: str,
) -> None:
    """Read records of all partitions and print rates; exit 1 when fewer came than --messages.

    MB are 2^20 bytes.

    Example: kafkalog perf consume orders --messages 100000
    """
    result = ReadLoad(topic, messages, timeout_ms, from_latest, fetch_size).run(
        client, SystemClock()
    )
    if not is_printed(output, result.document()):
        click.echo(READ_HEADER)
        click.echo(result.line())
    if result.is_interrupted:
        raise KeyboardInterrupt
    if not result.is_complete:
        click.echo(f"Error: only {result.record_count} of {messages} records came.", err=True)
        raise click.exceptions.Exit(1)
