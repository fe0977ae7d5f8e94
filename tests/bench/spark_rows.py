"""Reading on Spark, and the archive, beside Spark's own Kafka source over a broker of the same log.

One session with two slots a side, in processes of their own, kept for all rounds. MB are of keys
and values.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from kafkalog.format.records.record_batch import Codec
from tests.bench.results import Goal, Result, Sample
from tests.bench.spark_side import (
    SESSION_NOTE,
    UNIX_SOCKETS_NOTE,
    WARM_UPS,
    Reader,
    SparkProcess,
    kafkas_session,
)
from tests.bench.spark_topics import PARTITIONS, TOPIC, plant, write_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.bench.bench import Bench
    from tests.bench.spark_side import Answer

    Work = Callable[[Reader, Path], Answer]

_BATCHES = 1840, 160
"""Of 64 KiB in each partition, in a full and in a quick run: 2.2 and 0.2 M records."""

_STREAM_BATCHES = 5520, 160
"""Likewise for a stream, which takes a second or two to begin: 22 micro-batches, which do not."""

_DURABILITY = "from the page cache"
_TOLD = ("start_seconds", "trigger_seconds")
"""Of an answer, beside the speed."""


def spark_micro_batches(bench: Bench) -> Result:
    """A stream with a bound on its micro-batches."""
    trigger_rows = bench.size(300_000, 50_000)
    return _compared(
        bench,
        f"stream in micro-batches of {trigger_rows:,} rows",
        times=1,
        ours=partial(_micro_batches, trigger_rows=trigger_rows),
        batches=_STREAM_BATCHES,
        unix_sockets=True,
        notes=("both: seven columns", "MB/s from the start of the query to its end"),
    )


def _archived(bench: Bench, *, is_iceberg: bool) -> Result:
    """The archive job on Spark against what Spark users do instead, who have no Iceberg for it."""
    form = "an Iceberg table" if is_iceberg else "Parquet files"
    return _compared(
        bench,
        f"archive job into {form}",
        times=4,
        ours=partial(_archive, is_iceberg=is_iceberg),
        theirs=_parquet_with_headers,
        unix_sockets=True,
        durability="from the page cache; kafkalog's files synced",
        notes=(
            "both: eight columns, with headers",
            "Kafka: DataFrame of the Kafka source to Parquet, snappy; kafkalog: zstd",
        ),
    )


def _scan(reader: Reader, _: Path) -> Answer:
    return reader.ask("scan")


def _parquet(reader: Reader, target: Path) -> Answer:
    return reader.ask("parquet", target=str(target))


def _parquet_with_headers(reader: Reader, target: Path) -> Answer:
    options = {**reader.options, "includeHeaders": "true"}
    return _parquet(reader._replace(options=options), target)


def _micro_batches(reader: Reader, target: Path, *, trigger_rows: int) -> Answer:
    return reader.ask("micro_batches", trigger_rows=trigger_rows, target=str(target))


def _archive(reader: Reader, target: Path, *, is_iceberg: bool) -> Answer:
    log_dir = reader.options["path"]
    return reader.process.ask("archive", log_dir=log_dir, target=str(target), is_iceberg=is_iceberg)


def _compared(
    bench: Bench,
    what: str,
    *,
    times: float,
    ours: Work = _scan,
    theirs: Work | None = None,
    codec: Codec = Codec.NONE,
    batches: tuple[int, int] = _BATCHES,
    unix_sockets: bool = False,
    over_http: bool = False,
    durability: str = _DURABILITY,
    notes: tuple[str, ...] = ("both: seven columns",),
) -> Result:
    """The same log planted under both servers; without ``theirs`` Kafka's side works as ours."""
    source = write_source(bench.directory("source"), bench.size(*batches), codec)
    log_dir = plant(bench, source)

    def sample(reader: Reader, work: Work) -> Sample:
        answer = work(reader, bench.directory(f"out-{reader.format}"))
        assert answer["rows"] == source.records, answer
        assert answer.get("value_bytes", source.value_bytes) == source.value_bytes, answer
        extra = {name: answer[name] for name in _TOLD if name in answer}
        return Sample(source.payload_bytes / answer["seconds"] / 1e6, extra=extra)

    with _readers(bench, log_dir, over_http=over_http, unix_sockets=unix_sockets) as (
        our_reader,
        their_reader,
    ):
        rounds = bench.alternate(
            partial(sample, our_reader, ours),
            None if their_reader is None else partial(sample, their_reader, theirs or ours),
            warm_ups=WARM_UPS,
        )
    return Result(
        name=bench.name,
        what=f"Spark: {what}, {source.records / 1e6:.2g} M records, {PARTITIONS} partitions",
        unit="MB/s",
        durability=durability,
        goal=Goal.times(times),
        rounds=rounds,
        notes=(UNIX_SOCKETS_NOTE if unix_sockets else SESSION_NOTE, *notes),
    )


@contextmanager
def _readers(
    bench: Bench, log_dir: Path, *, over_http: bool, unix_sockets: bool
) -> Iterator[tuple[Reader, Reader | None]]:
    """Both sides, ready; the second is None in a run without Kafka."""
    with ExitStack() as stack:
        where = {"path": str(log_dir)}
        if over_http:
            daemon = stack.enter_context(bench.running_daemon())
            where = {"url": f"http://127.0.0.1:{daemon.port}"}
        session = stack.enter_context(SparkProcess.of(bench, "spark", unix_sockets=unix_sockets))
        ours = Reader(session, "kafkalog", {**where, "subscribe": TOPIC})
        kafka = stack.enter_context(kafkas_session(bench))
        theirs = None
        if kafka is not None:
            address = {"kafka.bootstrap.servers": kafka[1].bootstrap}
            theirs = Reader(kafka[0], "kafka", {**address, "subscribe": TOPIC})
        yield ours, theirs


_CODECS = (Codec.LZ4, Codec.ZSTD, Codec.SNAPPY, Codec.GZIP)
ROWS: dict[str, Callable[[Bench], Result]] = {
    "spark_scan": partial(_compared, what="scan from segments", times=2.5),
    "spark_scan_http": partial(_compared, what="scan over HTTP", times=2, over_http=True),
    **{
        f"spark_scan_{name}": partial(
            _compared, what=f"scan from segments, {name}", times=2, codec=codec
        )
        for codec in _CODECS
        if (name := codec.name.lower())
    },
    # By Spark's own writer, on both sides.
    "spark_parquet": partial(_compared, what="DataFrame to Parquet", times=1.6, ours=_parquet),
    "spark_archive_parquet": partial(_archived, is_iceberg=False),
    "spark_archive_iceberg": partial(_archived, is_iceberg=True),
    "spark_micro_batches": spark_micro_batches,
}
