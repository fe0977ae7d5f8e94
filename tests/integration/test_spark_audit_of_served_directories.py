"""Goal: the job audit finds no damage in what is still being written, and hides none behind it.
Method: directories on the machine's disk that are written, swapped and deleted from between the
looks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.jobs.audit import (
    audit_directories,
    checked_segment,
    checked_small_files,
)
from kafkalog.jobs.fleet import find_partitions
from kafkalog.jobs.tasks import InProcess
from kafkalog.log.inspect.directory_check import list_directory
from kafkalog.log.inspect.findings import Finding, FindingCode, Severity
from kafkalog.log.inspect.segment_check import SegmentReport
from tests.fleet_world import (
    flip_record,
    keyed_segments,
    plant_partition,
)
from tests.naive.stored_batches import Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kafkalog.env.filesystem import FileStat
    from kafkalog.jobs.audit import AuditTask
    from kafkalog.jobs.fleet import FleetPartition

LOG = "00000000000000000000.log"
SECOND = "00000000000000000012"
PRODUCER = Producer(7, 2, 0)


class ChangingDisk(SystemFilesystem):
    """A disk on which somebody works: ``change`` happens before the nth listing."""

    def __init__(self, nth: int, change: Callable[[], object]) -> None:
        self._left = nth
        self._change = change

    def list_dir_stats(self, path: str) -> list[FileStat]:
        self._left -= 1
        if not self._left:
            self._change()
        return super().list_dir_stats(path)


def test_a_write_under_way_is_no_finding(tmp_path: Path) -> None:
    """A directory that is served may change under the audit."""
    directory = plant_partition(tmp_path / "a" / "t-0", keyed_segments(3, 4))
    (partition,) = find_partitions([str(tmp_path / "a")], SystemFilesystem())
    last = sorted(directory.glob("*.log"))[-1]
    whole = last.read_bytes()
    last.write_bytes(whole[:-7])
    torn = checked_segment(partition, SystemFilesystem(), 24)
    assert isinstance(torn, SegmentReport)
    assert [each.code for each in torn.findings] == [FindingCode.TORN_TAIL]
    ended = checked_segment(partition, ChangingDisk(2, lambda: last.write_bytes(whole)), 24)
    assert isinstance(ended, SegmentReport)
    assert (ended.findings, ended.batch_count) == ((), 4)
    flip_record(directory)
    for nth in (1, 2):
        gone = checked_segment(partition, ChangingDisk(nth, (directory / LOG).unlink), 0)
        assert isinstance(gone, Finding)
        assert (gone.code, gone.severity) == (FindingCode.VANISHED, Severity.INFO)
        (directory / LOG).write_bytes(b"rot" * 100)


def test_a_snapshot_that_is_being_written_is_no_finding(tmp_path: Path) -> None:
    """A daemon that is held up between making a file and writing it has no damage."""
    directory = plant_partition(tmp_path / "a" / "t-0", keyed_segments(3, 4, producer=PRODUCER))
    (partition,) = find_partitions([str(tmp_path / "a")], SystemFilesystem())
    served = replace(partition, is_served=True)
    snapshot = sorted(directory.glob("*.snapshot"))[-1]
    whole = snapshot.read_bytes()

    def found(each: FleetPartition, filesystem: SystemFilesystem) -> list[FindingCode]:
        listing = list_directory(str(directory), filesystem)
        small = checked_small_files(each, filesystem, listing)
        return [finding.code for finding in small.findings]

    snapshot.write_bytes(b"")
    assert found(served, ChangingDisk(4, lambda: snapshot.write_bytes(whole))) == []
    snapshot.write_bytes(b"")
    assert found(partition, SystemFilesystem()) == [FindingCode.SNAPSHOT]
    assert found(served, SystemFilesystem()) == [FindingCode.SNAPSHOT]


class Retention(InProcess):
    """Segments are deleted after the first task."""

    def __init__(self, directory: Path, bases: Sequence[int]) -> None:
        self._directory = directory
        self._bases = bases

    def run(self, tasks: Any, work: Any, on_done: Any) -> Any:
        def done(task: AuditTask) -> None:
            on_done(task)
            for base in self._bases if task.is_first else ():
                for path in self._directory.glob(f"{base:020}.*"):
                    path.unlink()

        return super().run(tasks, work, done)


def test_segments_that_retention_deletes_meanwhile_leave_no_hole(tmp_path: Path) -> None:
    """Offsets and sequences of segments that were deleted under the audit are not missing; a hole
    that was there before is told.
    """
    directory = plant_partition(tmp_path / "a" / "t-0", keyed_segments(6, 4, producer=PRODUCER))
    for path in directory.glob(f"{48:020}.*"):
        path.unlink()
    (partition,) = find_partitions([str(tmp_path / "a")], SystemFilesystem())
    runner = Retention(directory, (0, 12, 24))
    found = audit_directories([partition], runner, target_bytes=1).rows
    rows = [(row.severity, row.code, row.file) for row in found]
    assert rows == [
        ("warning", "producer_sequence", segment_file_name(60, ".log")),
        ("error", "missing_offsets", segment_file_name(48, ".log")),
        ("info", "vanished", segment_file_name(12, ".log")),
        ("info", "vanished", segment_file_name(24, ".log")),
    ]


def test_an_index_that_a_swap_has_yet_to_rename_is_no_finding(tmp_path: Path) -> None:
    """A swap that is slower than two looks is no missing file; where nobody swaps, it is."""
    directory = plant_partition(tmp_path / "a" / "t-0", keyed_segments(3, 4))
    (partition,) = find_partitions([str(tmp_path / "a")], SystemFilesystem())
    index, swap = directory / f"{SECOND}.index", directory / f"{SECOND}.index.swap"
    index.rename(swap)
    lost = checked_segment(partition, SystemFilesystem(), 12)
    assert isinstance(lost, SegmentReport)
    assert [each.code for each in lost.findings] == [FindingCode.MISSING_FILE]
    served = replace(partition, is_served=True)
    found = checked_segment(served, ChangingDisk(5, lambda: swap.rename(index)), 12)
    assert isinstance(found, SegmentReport)
    assert (found.findings, found.batch_count) == ((), 4)
    index.rename(swap)
    gone = checked_segment(served, ChangingDisk(5, (directory / f"{SECOND}.log").unlink), 12)
    assert isinstance(gone, Finding)
    assert gone.code is FindingCode.VANISHED
