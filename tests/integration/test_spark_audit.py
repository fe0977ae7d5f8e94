"""Goal: the job audit finds every damage, and nothing in what is sound or still being written.
Method: damage planted into directories on the machine's disk, by chance and one by one; directories
that are written, swapped and deleted from between the looks.
"""

from __future__ import annotations

import gc
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.disk.checkpoints import encode_leader_epochs
from kafkalog.format.disk.file_names import segment_file_name
from kafkalog.format.records.record import Record
from kafkalog.format.records.record_batch import add_to_sequence
from kafkalog.jobs.audit import audit_directories, checked_segment, checked_small_files, plan_tasks
from kafkalog.jobs.fleet import find_partitions
from kafkalog.jobs.tasks import InProcess, ProcessPool
from kafkalog.log.inspect.directory_check import list_directory
from kafkalog.log.inspect.findings import Finding, FindingCode, Severity
from kafkalog.log.inspect.segment_check import SegmentReport
from kafkalog.log.segment.segment_file import MovableDirectory
from kafkalog.log.state.leader_epoch_cache import LeaderEpochCache
from tests.fleet_world import (
    contents,
    flip_record,
    gone,
    kept_logging,
    keyed_segments,
    plant_mixed,
    plant_partition,
)
from tests.naive.cleaning_logs import TIME, MadeSegment
from tests.naive.stored_batches import NOBODY, Producer, stored_batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kafkalog.env.filesystem import FileStat
    from kafkalog.jobs.audit import Audit, AuditRow, AuditTask
    from kafkalog.jobs.fleet import FleetPartition

LOG = "00000000000000000000.log"
SECOND, LAST = "00000000000000000012", "00000000000000000024"
PRODUCER = Producer(7, 2, 0)


@pytest.fixture(autouse=True)
def _log_lines_go_where_they_went() -> Iterator[None]:
    with kept_logging():
        yield


def audited(log_dir: Path, *, target_bytes: int = 128 << 20) -> Audit:
    partitions = find_partitions([str(log_dir)], SystemFilesystem())
    return audit_directories(partitions, InProcess(), target_bytes=target_bytes)


def batch(offset: int, *, epoch: int = 0, producer: Producer = NOBODY) -> bytes:
    record = Record(offset, TIME + offset, b"k%d" % offset, b"v")
    return stored_batch([record], leader_epoch=epoch, producer=producer)


def codes(rows: Sequence[AuditRow]) -> list[tuple[str, str]]:
    return [(row.severity, row.code) for row in rows]


def edit(path: Path, change: Callable[[bytearray], None]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def test_a_sound_directory_has_no_findings(tmp_path: Path) -> None:
    plant_partition(tmp_path / "a" / "t-0", keyed_segments(4, 4, producer=PRODUCER))
    before = contents(tmp_path)
    for target_bytes in (1, 128 << 20):
        found = audited(tmp_path / "a", target_bytes=target_bytes)
        assert found.rows == []
        assert found.totals == {
            "partitions": 1,
            "segments": 4,
            "batches": 16,
            "bytes": sum(len(data) for name, data in before.items() if name.endswith(".log")),
            "errors": 0,
            "warnings": 0,
        }
    assert contents(tmp_path) == before


Damage = Callable[[Path], object]


def edited(name: str, at: int, data: bytes) -> Damage:
    """Other bytes from a place in a file on."""
    return lambda directory: edit(
        directory / name, lambda whole: whole.__setitem__(slice(at, at + len(data)), data)
    )


def written(name: str, data: bytes) -> Damage:
    """A file with these bytes alone."""
    return lambda directory: (directory / name).write_bytes(data)


def torn_tail(directory: Path) -> None:
    edit(directory / f"{LAST}.log", lambda data: data.__delitem__(slice(-7, None)))


def missing_epochs(directory: Path) -> None:
    written("../log-start-offset-checkpoint", b"0\n0\n")(directory)
    written("leader-epoch-checkpoint", b"0\n1\n0 5\n")(directory)


def renamed(directory: Path) -> None:
    for path in directory.glob(f"{SECOND}.*"):
        path.rename(path.with_name(path.name.replace(SECOND, "00000000000000000011")))


DAMAGE: tuple[tuple[Damage, str, str], ...] = (
    (flip_record, "error", "batch_crc"),
    (edited(LOG, 16, b"\1"), "error", "batch_magic"),
    (edited(LOG, 8, bytes(4)), "error", "batch_size"),
    (torn_tail, "error", "torn_tail"),
    (gone(f"{SECOND}.*"), "error", "missing_offsets"),
    (gone(f"{SECOND}.log"), "error", "missing_offsets"),
    (gone(f"{SECOND}.index"), "error", "missing_file"),
    (written(f"{SECOND}.index", b"\0\0\0\1\0\0\0\7"), "error", "offset_index"),
    (written(f"{SECOND}.timeindex", b""), "error", "time_index"),
    (written(f"{SECOND}.snapshot", b"damage"), "error", "snapshot"),
    (missing_epochs, "warning", "epoch_checkpoint"),
    (written("leader-epoch-checkpoint", b"0\n1\n1 0\n"), "warning", "epoch_checkpoint"),
    (written("leader-epoch-checkpoint", b"damage"), "error", "epoch_checkpoint"),
    (renamed, "error", "overlap"),
    (written(f"{SECOND}.log.swap", b""), "error", "unfinished_replacement"),
    (written("abc.log", b""), "error", "file_name"),
)


@pytest.mark.parametrize(("damage", "severity", "code"), DAMAGE)
def test_each_damage_is_found_under_its_code(
    damage: Damage, severity: str, code: str, tmp_path: Path
) -> None:
    for partition in range(2):
        plant_partition(tmp_path / "a" / f"t-{partition}", keyed_segments(3, 4, producer=PRODUCER))
    assert audited(tmp_path / "a").rows == []
    damage(tmp_path / "a" / "t-1")
    found = audited(tmp_path / "a", target_bytes=1)
    assert (severity, code) in codes(found.rows)
    assert {(row.topic, row.partition) for row in found.rows} == {("t", 1)}
    assert {row.directory for row in found.rows} == {str(tmp_path / "a" / "t-1")}


def test_batches_that_do_not_follow_are_found(tmp_path: Path) -> None:
    """Offsets, epochs, sequences and counts of batches with a right CRC, in one task or many."""
    one, two = Producer(7, 2, 5), Producer(7, 1, 6)
    cases: dict[str, tuple[list[list[bytes]], list[tuple[str, str]]]] = {
        "gap": ([[batch(0), batch(2)]], [("warning", "offset_gap")]),
        "name": ([[batch(0)], [batch(3)]], [("warning", "offset_gap")]),
        "leader": ([[batch(0, epoch=3), batch(1, epoch=2)]], [("warning", "leader_epoch")]),
        "leaders": ([[batch(0, epoch=3)], [batch(1, epoch=2)]], [("warning", "leader_epoch")]),
        "epoch": (
            [[batch(0, producer=one), batch(1, producer=two)]],
            [("warning", "producer_epoch")],
        ),
        "epochs": (
            [[batch(0, producer=one)], [batch(1, producer=two)]],
            [("warning", "producer_epoch")],
        ),
        "sequence": (
            [[batch(0, producer=one), batch(1, producer=Producer(7, 2, 7))]],
            [("warning", "producer_sequence")],
        ),
        "sequences": (
            [[batch(0, producer=one)], [batch(1)], [batch(2, producer=Producer(7, 2, 5))]],
            [("warning", "producer_sequence")],
        ),
        "new-epoch": (
            [[batch(0, producer=one)], [batch(1, producer=Producer(7, 3, 6))]],
            [("warning", "producer_sequence")],
        ),
        "wrap": (
            [
                [batch(0, producer=Producer(7, 2, 2**31 - 1))],
                [batch(1, producer=Producer(7, 2, 0)), batch(2, producer=Producer(7, 3, 0))],
            ],
            [],
        ),
    }
    for name, (segments, expected) in cases.items():
        made = []
        for number, batches in enumerate(segments):
            base = int.from_bytes(batches[0][:8], "big") if name != "name" else number
            made.append(MadeSegment(base, TIME, list(batches)))
        directory = plant_partition(tmp_path / name / "t-0", made)
        (directory / "leader-epoch-checkpoint").unlink(missing_ok=True)
        for target_bytes in (1, 128 << 20):
            rows = audited(tmp_path / name, target_bytes=target_bytes).rows
            found = [each for each in codes(rows) if each != ("error", "missing_offsets")]
            assert found == expected, name
    assert [add_to_sequence(last, 1) for last in (-1, 2**31 - 1)] == [0, 0]


EPOCHS = (0, 0, 0, 0, 2, 2, 3, 3, 3, 3, 5, 5)  # of one record each, in segments of four


def epochs_found(log_dir: Path) -> list[tuple[str, str]]:
    rows = audited(log_dir, target_bytes=1).rows
    assert {row.code for row in rows} <= {"epoch_checkpoint"}
    return [(row.file, row.text) for row in rows]


@pytest.mark.parametrize("start", range(len(EPOCHS)))
def test_epochs_are_held_against_the_checkpoint_from_the_log_start_on(
    start: int, tmp_path: Path
) -> None:
    """Goal: a checkpoint that was cut from the start, as Kafka cuts it, is no finding wherever the
    log starts in a segment; an entry that is missing or wrong above the log start is one.
    Method: a log of four epochs whose segments all lie there still, with each log start: told by
    the checkpoint of log starts, by no file, by a damaged one, and by an old one of a served log.
    """
    made = [
        MadeSegment(base, TIME, [batch(at, epoch=EPOCHS[at]) for at in range(base, base + 4)])
        for base in (0, 4, 8)
    ]
    directory = plant_partition(tmp_path / "a" / "t-0", made)
    checkpoint = directory / "leader-epoch-checkpoint"
    cache = LeaderEpochCache(SystemFilesystem(), MovableDirectory(str(directory)))
    cache.load()
    assert cache.entries == ((0, 0), (2, 4), (3, 6), (5, 10))
    cache.truncate_from_start(start)
    cache.flush()
    starts = tmp_path / "a" / "log-start-offset-checkpoint"
    assert epochs_found(tmp_path / "a") == []
    starts.write_bytes(b"rot")
    assert epochs_found(tmp_path / "a") == []
    starts.write_bytes(b"0\n1\nt 0 %d\n" % start)
    assert epochs_found(tmp_path / "a") == []
    first, *others = cache.entries
    for number, entry in enumerate(others):
        checkpoint.write_bytes(
            encode_leader_epochs([first, *others[:number], *others[number + 1 :]])
        )
        (_, text), *_ = epochs_found(tmp_path / "a")
        assert text.startswith(f"leader epoch {entry.epoch} at offset {entry.start_offset}, ")
    checkpoint.write_bytes(encode_leader_epochs([(first.epoch, start + 1), *others]))
    if len(others) == 0 or others[0].start_offset > start + 1:
        file = segment_file_name(start - start % 4, ".log")
        problem = f"leader epoch {first.epoch} at offset {start}, where the checkpoint has none"
        assert epochs_found(tmp_path / "a") == [(file, problem)]
        (partition,) = find_partitions([str(tmp_path / "a")], SystemFilesystem())
        served = replace(partition, is_served=True)
        assert audit_directories([served], InProcess()).rows == []


def test_compacted_logs_may_have_gaps(tmp_path: Path) -> None:
    plant_mixed(tmp_path / "a", "orders", 6)
    assert {row.severity for row in audited(tmp_path / "a").rows} >= {"warning"}
    result = run(
        *("audit", "--dirs", tmp_path / "a", "--config", "cleanup.policy=compact"),
        *("--output", "json"),
    )
    rows = json.loads(result.stdout)["rows"]
    assert {row["code"] for row in rows} <= {"producer_epoch", "leader_epoch", "epoch_checkpoint"}
    lines = "".join(f"orders {partition} 1\n" for partition in range(6))
    (tmp_path / "a" / "cleaner-offset-checkpoint").write_text(f"0\n6\n{lines}")
    again = [row._asdict() for row in audited(tmp_path / "a").rows]
    assert again == rows


@pytest.mark.parametrize("seed", range(30))
def test_a_byte_that_changes_is_found(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    directory = plant_partition(tmp_path / "a" / "t-0", keyed_segments(3, 6, producer=PRODUCER))
    path = chance.choice(sorted(directory.glob("*.log"))[:-1])
    position = chance.randrange(path.stat().st_size)
    edit(path, lambda data: data.__setitem__(position, data[position] ^ (1 << chance.randrange(8))))
    assert audited(tmp_path / "a").rows


def test_a_partition_that_cannot_be_read_is_a_row(tmp_path: Path) -> None:
    directory = plant_partition(tmp_path / "a" / "t-0", keyed_segments(3, 4))
    flip_record(directory)
    shutil.move(directory / f"{SECOND}.index", tmp_path / "moved")
    (directory / f"{SECOND}.index").mkdir()
    found = codes(audited(tmp_path / "a").rows)
    assert ("error", "batch_crc") in found
    assert ("error", "missing_file") in found


def run(*words: str | Path) -> Any:
    return CliRunner().invoke(make_cli(), ["spark", *(str(word) for word in words)])


@pytest.mark.slow
def test_the_command_tells_rows_totals_and_status(tmp_path: Path) -> None:
    """0 when sound, 1 with errors; text, JSON and Parquet; a pool gives the same."""
    for partition in range(2):
        plant_partition(tmp_path / "a" / f"t-{partition}", keyed_segments(3, 4))
    sound = run("audit", "--dirs", tmp_path / "a" / "t-0")
    assert sound.exit_code == 0
    assert sound.stdout.startswith("partitions: 1, segments: 3, batches: 12")
    flip_record(tmp_path / "a" / "t-1")
    text = run("audit", "--dirs", tmp_path / "a")
    assert text.exit_code == 1
    assert "batch_crc" in text.stdout
    document = run("audit", "--dirs", tmp_path / "a", "--output", "json")
    assert document.exit_code == 1
    answer = json.loads(document.stdout)
    assert answer["totals"]["errors"] == len(answer["rows"]) == 1
    partitions = find_partitions([str(tmp_path / "a")], SystemFilesystem())
    pooled = audit_directories(partitions, ProcessPool(2), target_bytes=1)
    assert [row._asdict() for row in pooled.rows] == answer["rows"]
    parquet = tmp_path / "rows.parquet"
    wrong = run("audit", "--dirs", tmp_path / "a", "--output", "parquet")
    assert (wrong.exit_code, "--file belong together" in wrong.output) == (2, True)
    run("audit", "--dirs", tmp_path / "a", "--output", "parquet", "--file", parquet)
    pq = pytest.importorskip("pyarrow.parquet")
    assert pq.read_table(parquet).to_pylist() == answer["rows"]
    assert [path.name for path in tmp_path.iterdir()].count("rows.parquet") == 1


def test_a_task_is_a_value(tmp_path: Path) -> None:
    """Large partitions are split, small files are looked at once."""
    plant_partition(tmp_path / "a" / "t-0", keyed_segments(3, 4))
    (partition,) = find_partitions([str(tmp_path / "a")], SystemFilesystem())
    tasks: list[AuditTask] = plan_tasks(partition, SystemFilesystem(), 1)
    assert [task.bases for task in tasks] == [(0,), (12,), (24,)]
    assert [task.is_first for task in tasks] == [True, False, False]
    assert sum(task.size_bytes for task in tasks) == partition.size_bytes


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


class CountingDisk(SystemFilesystem):
    """A disk that counts its listings."""

    listings = 0

    def list_dir_stats(self, path: str) -> list[FileStat]:
        self.listings += 1
        return super().list_dir_stats(path)


def test_segments_do_not_cost_a_listing_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: an audit does not take longer with the square of a partition's segments.
    Method: listings of the directory, by plan and tasks, of two numbers of segments.
    """
    counts = []
    for segments in (4, 16):
        log_dir = tmp_path / str(segments)
        plant_partition(log_dir / "t-0", keyed_segments(segments, 1))
        disk = CountingDisk()
        monkeypatch.setattr("kafkalog.jobs.audit.filesystem_for", lambda _, disk=disk: disk)
        found = audited(log_dir, target_bytes=1)
        assert (found.rows, found.totals["segments"]) == ([], segments)
        counts.append(disk.listings)
    assert counts == [3, 3]  # two of the plan, one of the first task


class Memory(InProcess):
    """Notes how many reports are in memory when a task has ended."""

    most = 0

    def stream(self, *given: Any, **options: Any) -> Any:
        gc.collect()  # what other tests left
        for ended in super().stream(*given, **options):
            reports = sum(isinstance(each, SegmentReport) for each in gc.get_objects())
            self.most = max(self.most, reports)
            yield ended


def test_reports_are_joined_when_their_partition_has_ended(tmp_path: Path) -> None:
    """Goal: the driver's memory does not grow with the partitions of a job.
    Method: reports that are alive, of two numbers of partitions, in tasks of one segment.
    """
    most = []
    for count in (2, 8):
        for partition in range(count):
            plant_partition(tmp_path / str(count) / f"t-{partition}", keyed_segments(3, 1))
        runner = Memory()
        partitions = find_partitions([str(tmp_path / str(count))], SystemFilesystem())
        found = audit_directories(partitions, runner, target_bytes=1)
        assert (found.rows, found.totals["segments"]) == ([], 3 * count)
        most.append(runner.most)
        del found
    assert most[0] == most[1] <= 3 + 1


def test_a_write_under_way_is_no_finding(tmp_path: Path) -> None:
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
    """Segments are deleted after the first task of a log, which is done first."""

    def __init__(self, directory: Path, bases: Sequence[int]) -> None:
        super().__init__()
        self._directory = directory
        self._bases = bases

    def stream(self, tasks: Any, work: Any, *, wave_bytes: int | None = None) -> Any:
        order = sorted(enumerate(tasks), key=lambda each: not each[1].is_first)
        in_order = [task for _, task in order]
        for ended in super().stream(in_order, work, wave_bytes=wave_bytes):
            for base in self._bases if ended.task.is_first else ():
                for path in self._directory.glob(f"{base:020}.*"):
                    path.unlink()
            yield ended._replace(number=order[ended.number][0])


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
