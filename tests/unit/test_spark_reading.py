"""Goal: a task gives every row of its piece that is there, and says what is not.
Method: log directories on disk, read without Spark; segments that go before or while they are read.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest

from kafkalog.spark.logs.values import CorruptLog, DataLost, OffsetRange, Piece
from kafkalog.spark.options import batch_options
from kafkalog.spark.reading import batches_of
from tests.spark.log_directory import LogDirectory

pa = pytest.importorskip("pyarrow")

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.spark.options import SourceOptions

SCHEMA = pa.schema([("offset", pa.int64()), ("value", pa.binary())])


@pytest.fixture
def logs(tmp_path: Path) -> LogDirectory:
    """Offsets 0 to 30 in three segments."""
    made = LogDirectory(tmp_path / "logs")
    for first in (0, 10, 20):
        made.fill("a", 0, first, 10)
    return made


def options_of(logs: LogDirectory, **given: str) -> SourceOptions:
    """Small chunks, so that a segment takes several."""
    place = {"path": str(logs.path), "subscribe": "a", "chunkbytes": "1k"}
    return batch_options(place | given)


def piece(logs: LogDirectory, first: int, end: int) -> Piece:
    return Piece(OffsetRange("a", 0, first, end), str(logs.path / "a-0"), None, 1000)


def offsets(logs: LogDirectory, first: int, end: int, **given: str) -> list[int]:
    found = batches_of(piece(logs, first, end), options_of(logs, **given), SCHEMA)
    return [offset for batch in found for offset in batch.column("offset").to_pylist()]


def test_the_first_segment_is_gone(logs: LogDirectory, caplog: pytest.LogCaptureFixture) -> None:
    (logs.path / "a-0" / f"{0:020}.log").unlink()
    with pytest.raises(DataLost, match=r"a-0 \[7, 10\) are missing: .*failOnDataLoss=false"):
        offsets(logs, 7, 23)
    with caplog.at_level(logging.WARNING):
        assert offsets(logs, 7, 23, failondataloss="false") == list(range(10, 23))
    assert [record.getMessage() for record in caplog.records] == [
        "The records of a-0 [7, 10) are missing: the log starts at 10"
    ]


def test_the_log_ends_early(logs: LogDirectory) -> None:
    found: list[int] = []
    batches = batches_of(piece(logs, 25, 35), options_of(logs), SCHEMA)
    with pytest.raises(DataLost, match=r"a-0 \[30, 35\) are missing"):
        found.extend(offset for batch in batches for offset in batch.column("offset").to_pylist())
    assert found == list(range(25, 30))
    assert offsets(logs, 25, 35, failondataloss="false") == list(range(25, 30))
    assert offsets(logs, 50, 55, failondataloss="false") == []


def test_a_corrupt_batch_ends_it_in_any_case(logs: LogDirectory) -> None:
    file = logs.path / "a-0" / f"{10:020}.log"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptLog, match="the batch at offset 10 is not valid"):
        offsets(logs, 0, 30, failondataloss="false")


def test_a_task_that_ends_early_lets_go(logs: LogDirectory) -> None:
    before = os.listdir("/proc/self/fd")
    found = batches_of(piece(logs, 0, 30), options_of(logs), SCHEMA)
    next(found)
    found.close()
    assert len(os.listdir("/proc/self/fd")) == len(before)
