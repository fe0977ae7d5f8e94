"""Goal: what Spark's benchmarks read is what they count by, and who is asked answers.
Method: small logs of each codec, decoded by a benchmark's process without Spark; the selections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafkalog.format.records.record_batch import Codec
from kafkalog.spark.logs.open import open_logs, read_piece
from kafkalog.spark.logs.values import Access, OffsetRange
from kafkalog.spark.reading import record_batches
from tests.bench.__main__ import ALL, BENCHMARKS, ON_SPARK, wanted
from tests.bench.spark_side import SparkProcess
from tests.bench.spark_topics import BATCH_RECORDS, COLUMNS, PARTITIONS, TOPIC, write_source

if TYPE_CHECKING:
    from pathlib import Path

BATCHES = 3


@pytest.mark.parametrize("codec", list(Codec))
def test_a_source_holds_what_it_says(tmp_path: Path, codec: Codec) -> None:
    """Records and bytes of keys and values, in every partition."""
    source = write_source(tmp_path / "logs", BATCHES, codec)
    access = Access(paths=(str(source.directory),))
    logs = open_logs(access)
    rows = key_bytes = value_bytes = 0
    for partition in range(PARTITIONS):
        end = logs.bounds(TOPIC, partition).end_offset
        assert end == source.partition_records == BATCHES * BATCH_RECORDS
        for piece in logs.pieces(OffsetRange(TOPIC, partition, 0, end), 1 << 30):
            for batch in record_batches(read_piece(piece, access), piece.range, COLUMNS):
                rows += batch.num_rows
                key_bytes += sum(map(len, batch.column("key").to_pylist()))
                values = batch.column("value").to_pylist()
                value_bytes += sum(len(each) for each in values if each is not None)
    assert rows == source.records
    assert value_bytes == source.value_bytes
    assert key_bytes + value_bytes == source.payload_bytes


def test_a_process_does_what_it_is_asked(tmp_path: Path) -> None:
    """Again and again, until its input ends; what it cannot do is in its log."""
    source = write_source(tmp_path / "logs", BATCHES)
    ends = [source.partition_records] * PARTITIONS
    with SparkProcess(tmp_path / "process", with_spark=False) as process:
        for _ in range(2):
            found = process.ask("decode", log_dir=str(source.directory), topic=TOPIC, ends=ends)
            assert found["rows"] == source.records
        with pytest.raises(AssertionError, match=r"(?s)decode ended its process: .*DataLost"):
            process.ask("decode", log_dir=str(source.directory), topic=TOPIC, ends=[10**6])


def test_a_quick_run_starts_no_spark() -> None:
    """Unless it is told to."""
    assert wanted(quick=True, on_spark=False) == list(BENCHMARKS)
    assert wanted(quick=False, on_spark=False) == list(ALL)
    assert wanted(quick=True, on_spark=True) == list(ON_SPARK)
    assert len(ALL) == len(BENCHMARKS) + len(ON_SPARK)
