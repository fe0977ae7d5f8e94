"""What a core does without Spark, and what Spark's slots add: decoding, compaction, audit.

No Kafka here: the row `compaction` has Kafka's cleaner beside one thread of ours.
"""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from kafkalog.format.records.record_batch import Codec
from tests.bench.cleaner_rows import write_keyed_log
from tests.bench.results import Goal, Result, Round, Sample
from tests.bench.spark_side import CORES, UNIX_SOCKETS_NOTE, WARM_UPS, SparkProcess
from tests.bench.spark_topics import PARTITIONS, TOPIC, write_source

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.bench import Bench

_KEYED_PARTITIONS = 8
_COMPACTION_SHARE = 0.7
"""Of the slots: what the job on Spark is to reach of so many single threads."""


def spark_decode(bench: Bench) -> Result:
    """What a task of the source does before Spark gets its batches."""
    source = write_source(bench.directory("source"), bench.size(1840, 160))
    ends = [source.partition_records] * PARTITIONS
    with SparkProcess.of(bench, "single", with_spark=False) as single:

        def ours() -> Sample:
            answer = single.ask("decode", log_dir=str(source.directory), topic=TOPIC, ends=ends)
            assert answer["rows"] == source.records
            extra = {"records_per_s": source.records / answer["seconds"]}
            return Sample(source.payload_bytes / answer["seconds"] / 1e6, extra=extra)

        rounds = bench.alternate(ours, None, warm_ups=WARM_UPS)
    return Result(
        name=bench.name,
        what="Segments to Spark's seven columns, one core, CRC checked",
        unit="MB/s",
        durability="from the page cache",
        goal=Goal(">= 700 MB/s", at_least=700),
        rounds=rounds,
        notes=("MB of keys and values; one process without Spark, with the daemon's allocator",),
    )


def spark_compaction(bench: Bench) -> Result:
    """The job `compact` on Spark against the same job in one thread."""
    log_dir = str(_keyed_logs(bench))

    def sample(process: SparkProcess, place: str) -> Sample:
        target = str(bench.directory(place))
        answer = process.ask("compact", log_dir=log_dir, target=target)
        done.add((answer["bytes"], answer["bytes_after"], answer["records_removed"]))
        return Sample(answer["bytes"] / answer["seconds"] / 1e6)

    done: set[tuple[float, ...]] = set()
    with (
        SparkProcess.of(bench, "spark", unix_sockets=True) as spark,
        SparkProcess.of(bench, "single", with_spark=False) as single,
    ):
        pairs = bench.alternate(
            partial(sample, spark, "out-spark"),
            partial(sample, single, "out-single"),
            warm_ups=WARM_UPS,
        )
    assert len(done) == 1, f"the sides did not do the same work: {done}"
    goal = _COMPACTION_SHARE * CORES
    return Result(
        name=bench.name,
        what=f"Spark: compaction of {_KEYED_PARTITIONS} partitions, times a single thread",
        unit="x",
        durability="from the page cache, results synced",
        goal=Goal(f">= {goal:g} with {CORES} slots", at_least=goal),
        rounds=[_times_single(pair) for pair in pairs],
        notes=("both: the job `compact`; warm process", UNIX_SOCKETS_NOTE),
    )


def _times_single(pair: Round) -> Round:
    """How many single threads Spark was worth, with both speeds."""
    assert pair.kafka is not None, "both sides ran"
    spark, single = pair.kafkalog.value, pair.kafka.value
    return Round(Sample(spark / single, extra={"spark_mb_s": spark, "single_mb_s": single}))


def spark_audit(bench: Bench) -> Result:
    """The job `audit` in one thread, and on Spark beside."""
    log_dir = str(_keyed_logs(bench))

    def speed(process: SparkProcess) -> float:
        answer = process.ask("audit", log_dir=log_dir)
        assert answer["errors"] == 0, answer
        return answer["bytes"] / answer["seconds"] / 1e6

    with (
        SparkProcess.of(bench, "spark", unix_sockets=True) as spark,
        SparkProcess.of(bench, "single", with_spark=False) as single,
    ):
        rounds = bench.alternate(
            lambda: Sample(speed(single), extra={"spark_mb_s": speed(spark)}),
            None,
            warm_ups=WARM_UPS,
        )
    return Result(
        name=bench.name,
        what=f"Audit of {_KEYED_PARTITIONS} partitions, one core",
        unit="MB/s",
        durability="from the page cache",
        goal=Goal(">= 1,000 MB/s", at_least=1000),
        rounds=rounds,
        notes=(f"MB of the log as it lies on disk; beside it on Spark with local[{CORES}]",),
    )


def _keyed_logs(bench: Bench) -> Path:
    """A log directory with equal partitions that were stopped cleanly; an eighth are keys.

    1.8 GB: a second core pays from half a gigabyte on (spark.md 4), as a job takes time to begin.
    """
    records = bench.size(2_000_000, 25_000)
    log_dir = bench.directory("logs")
    first = log_dir / "keyed-0"
    write_keyed_log(first, records, records // 8, Codec.NONE)
    for number in range(1, _KEYED_PARTITIONS):
        shutil.copytree(first, log_dir / f"keyed-{number}")
    return log_dir
