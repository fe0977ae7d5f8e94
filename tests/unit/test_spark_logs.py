"""Goal: what Spark reads of log directories begins and ends where it must; errors say what to do.
Method: small logs on a simulated disk: torn, locked, moved, doubled; batches that break or explode.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest

from kafkalog.client import Basic, Bearer, Tls
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import CorruptCheckpoint
from kafkalog.format.disk.log_proofs import CheckedOffsets, LogKey, encode_proofs
from kafkalog.format.disk.properties import (
    MetaProperties,
    encode_meta_properties,
    encode_partition_metadata,
)
from kafkalog.format.records.record import Record
from kafkalog.format.records.record_batch import Codec
from kafkalog.format.topic_names import encode_id
from kafkalog.jobs.fleet import UnusableDirectory, find_partitions
from kafkalog.spark.logs.directory import DirectoryLogs
from kafkalog.spark.logs.directory_reader import read_directory_piece
from kafkalog.spark.logs.open import open_logs
from kafkalog.spark.logs.pieces import Cuts
from kafkalog.spark.logs.values import (
    Access,
    AmbiguousPartition,
    Bounds,
    Chunk,
    CorruptLog,
    DataLost,
    OffsetRange,
    Piece,
    UnusableLogDir,
)
from kafkalog.spark.reading import record_batches
from tests.naive.stored_batches import CONTROL, TRANSACTIONAL, Producer, stored_batch
from tests.sim.sim_filesystem import SimFilesystem
from tests.spark_reads import SPARK_SCHEMA, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW_MS = 1_700_000_000_000
ACCESS = Access(paths=("/a", "/b"))
T0 = "/a/t-0"


def record(offset: int, value: bytes | None = b"v", stamp: int = NOW_MS) -> Record:
    return Record(offset, stamp, b"k", value, ((b"h", b"1"),))


def batches(*offsets: int) -> bytes:
    return b"".join(stored_batch([record(offset)]) for offset in offsets)


def disk_with(**segments: bytes) -> SimFilesystem:
    """Segments of t-0 by their base, ``b5=...``, in /a; /b is empty."""
    disk = SimFilesystem()
    disk.make_dir(T0)
    disk.make_dir("/b")
    for name, data in segments.items():
        disk.open_write(f"{T0}/{int(name[1:]):020d}.log").pwrite(data, 0)
    return disk


def checkpoint(disk: SimFilesystem, name: str, offset: int) -> None:
    disk.write_file_atomically(f"/a/{name}", f"0\n1\nt 0 {offset}\n".encode())


def values(disk: SimFilesystem, piece: Piece) -> list[int]:
    chunks = read_directory_piece(piece, ACCESS, 100, check_crcs=True, filesystem=disk)
    return [row["offset"] for row in rows_of(record_batches(chunks, piece.range, SPARK_SCHEMA))]


def test_topics_are_the_live_partitions_of_clients() -> None:
    disk = disk_with(b0=b"")
    for name in ("t-10", "t-2", "other-0", "__consumer_offsets-3", "lost+found", "x-0.0-stray"):
        disk.make_dir(f"/b/{name}")
    for state in ("delete", "future", "stray"):
        disk.make_dir(f"/b/gone-0.{'0' * 32}-{state}")
    disk.open_write("/b/file-0")
    assert DirectoryLogs(ACCESS, disk).topics() == {"other": [0], "t": [0, 2, 10]}


@pytest.mark.parametrize("tail", [b"", bytes(500), batches(4)[:-1], b"\xff" * 70, batches(4)[:30]])
def test_offline_a_log_ends_with_its_last_valid_batch(tail: bytes) -> None:
    """M02: behind it zeros of a preallocated file, half a batch, or anything."""
    disk = disk_with(b0=batches(0, 1), b2=batches(2, 3) + tail)
    logs = DirectoryLogs(ACCESS, disk)
    assert logs.bounds("t", 0) == (0, 4)
    checkpoint(disk, "recovery-point-offset-checkpoint", 3)
    assert logs.bounds("t", 0) == (0, 4)
    checkpoint(disk, "recovery-point-offset-checkpoint", 9)
    assert logs.bounds("t", 0) == (0, 4)
    checkpoint(disk, "log-start-offset-checkpoint", 1)
    assert logs.bounds("t", 0) == (1, 4)
    assert values(disk, Piece(OffsetRange("t", 0, 1, 4), T0, None, 0)) == [1, 2, 3]
    with pytest.raises((DataLost, CorruptLog)):
        values(disk, Piece(OffsetRange("t", 0, 1, 5), T0, None, 0))


def test_above_the_recovery_point_every_batch_is_looked_at() -> None:
    """M02: a power cut may tear each segment by itself; a start cuts the log at the first tear."""
    disk = disk_with(b0=batches(0, 1)[:-3], b2=batches(2, 3))
    checkpoint(disk, "recovery-point-offset-checkpoint", 0)
    assert DirectoryLogs(ACCESS, disk).bounds("t", 0) == (0, 1)


def test_under_a_daemon_a_log_ends_at_the_checkpointed_high_watermark() -> None:
    """M02: whatever the files hold; a partition without an entry shows nothing yet."""
    disk = disk_with(b0=batches(0, 1, 2))
    disk.hold_lock("/a/.lock")
    logs = DirectoryLogs(ACCESS, disk)
    assert logs.bounds("t", 0) == (0, 0)
    checkpoint(disk, "replication-offset-checkpoint", 2)
    assert logs.bounds("t", 0) == (0, 2)
    checkpoint(disk, "log-start-offset-checkpoint", 2)
    assert logs.bounds("t", 0) == (2, 2)


def test_what_is_deleted_is_lost_though_its_segment_lies_there() -> None:
    """M02: delete-records moves the log start into a segment; who asks for less is told."""
    disk = disk_with(b0=batches(0, 1, 2, 3))
    checkpoint(disk, "log-start-offset-checkpoint", 2)
    with pytest.raises(DataLost, match="starts at 2") as lost:
        values(disk, Piece(OffsetRange("t", 0, 1, 4), T0, None, 0))
    assert lost.value.missing == OffsetRange("t", 0, 1, 2)
    with pytest.raises(DataLost) as lost:
        values(disk, Piece(OffsetRange("t", 0, 0, 1), T0, None, 0))
    assert lost.value.missing == OffsetRange("t", 0, 0, 1)
    assert values(disk, Piece(OffsetRange("t", 0, 2, 4), T0, None, 0)) == [2, 3]


def test_read_committed_ends_at_the_first_open_transaction() -> None:
    """M02: found from the headers, or from a snapshot on; a marker behind the bound is no end."""
    data = b"".join(
        stored_batch([record(offset)], attributes=attributes, producer=Producer(producer, 0, 0))
        for offset, producer, attributes in (
            (0, -1, 0),
            (1, 7, TRANSACTIONAL),
            (2, 8, TRANSACTIONAL),
            (3, 7, TRANSACTIONAL | CONTROL),
            (4, -1, 0),
            (5, 8, TRANSACTIONAL | CONTROL),
        )
    )
    disk = disk_with(b0=data)
    disk.hold_lock("/a/.lock")
    logs = DirectoryLogs(Access(paths=("/a", "/b"), read_committed=True), disk)
    for high_watermark, stable in ((1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 6)):
        checkpoint(disk, "replication-offset-checkpoint", high_watermark)
        assert logs.bounds("t", 0) == Bounds(0, stable)


def test_a_log_directory_that_is_none_is_named() -> None:
    disk = disk_with(b0=batches(0))
    disk.write_file_atomically("/file", b"")
    for path in ("/nowhere", "/file"):
        with pytest.raises(
            UnusableLogDir, match=f"{path} is not a directory on this machine: path must name"
        ):
            DirectoryLogs(Access(paths=(path,)), disk).topics()


def test_a_partition_that_is_a_link_is_named(tmp_path: Path) -> None:
    for name in ("t-0", "u-0"):
        (tmp_path / "a" / name).mkdir(parents=True)
    (tmp_path / "a" / "__transaction_state-0").symlink_to(tmp_path / "nowhere")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a" / "lost").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "a" / "t-1").write_text("a file")
    logs = DirectoryLogs(Access(paths=(str(tmp_path / "a"),)))
    assert logs.topics() == {"t": [0], "u": [0]}
    for target in ("elsewhere", "nowhere"):
        link = tmp_path / "a" / "t-2"
        link.symlink_to(tmp_path / target)
        assert logs.topics() == {"t": [0, 2], "u": [0]}
        with pytest.raises(UnusableLogDir, match=f"{link} is a link or a device"):
            logs.bounds("t", 2)
        with pytest.raises(UnusableLogDir, match=f"{link} is a link or a device"):
            logs.pieces(OffsetRange("t", 2, 0, 1), 1)
        assert logs.bounds("u", 0) == Bounds(0, 0)
        for topics, which in ((None, "/__tr.*"), (frozenset("t"), link), (frozenset("tu"), link)):
            with pytest.raises(UnusableDirectory, match=f"{which} is a link or a device"):
                find_partitions([str(tmp_path / "a")], SystemFilesystem(), topics=topics)
        (other,) = find_partitions([str(tmp_path / "a")], SystemFilesystem(), topics=frozenset("u"))
        assert other.name == "u-0"
        link.unlink()
    assert logs.topics() == {"t": [0], "u": [0]}


def test_no_partition_is_guessed() -> None:
    """M02: the same one in two directories is an error that names both."""
    disk = disk_with(b0=batches(0))
    disk.make_dir("/b/t-0")
    with pytest.raises(AmbiguousPartition, match="/a/t-0 and in /b/t-0"):
        DirectoryLogs(ACCESS, disk).bounds("t", 0)


def test_a_partition_that_moved_is_found_again() -> None:
    """M02: between plan and read, and in the middle of a read."""
    disk = disk_with(b0=batches(0, 1), b2=batches(2, 3))
    (piece,) = DirectoryLogs(ACCESS, disk).pieces(OffsetRange("t", 0, 0, 4), 1 << 20)
    chunks = read_directory_piece(piece, ACCESS, 1 << 20, check_crcs=True, filesystem=disk)
    first = next(chunks)
    disk.rename(T0, "/b/t-0")
    rest = rows_of(record_batches([first, *chunks], piece.range, SPARK_SCHEMA))
    assert [row["offset"] for row in rest] == [0, 1, 2, 3]
    assert values(disk, piece) == [0, 1, 2, 3]
    disk.rename("/b/t-0", f"/b/t-0.{'0' * 32}-delete")
    with pytest.raises(DataLost, match="deleted") as lost:
        values(disk, piece)
    assert lost.value.missing == piece.range


@pytest.mark.parametrize("read_committed", [False, True])
def test_a_move_is_not_seen_by_who_plans_and_reads(read_committed: bool) -> None:
    """M02: bounds, pieces, times and reads while a partition moves, at any disk call of theirs."""
    access = Access(paths=("/a", "/b"), read_committed=read_committed)
    future = f"/b/t-0.{'0' * 32}-future"
    nth = 0
    while True:
        nth += 1
        disk = disk_with(b0=batches(0, 1), b2=batches(2, 3))
        disk.make_dir(future)
        for name in disk.list_dir(T0):
            disk.open_write(f"{future}/{name}").pwrite(disk.read_file(f"{T0}/{name}"), 0)
        for log_dir in ("/a", "/b"):
            disk.hold_lock(f"{log_dir}/.lock")
            path = f"{log_dir}/replication-offset-checkpoint"
            disk.write_file_atomically(path, b"0\n1\nt 0 4\n")
        calls = 0

        def on_call(disk: SimFilesystem = disk, nth: int = nth) -> None:
            nonlocal calls
            calls += 1
            if calls in (nth, nth + 1):
                disk.on_call = None
                if calls == nth:
                    disk.rename(T0, f"/a/t-0.{'0' * 32}-delete")
                else:
                    disk.rename(future, "/b/t-0")
                disk.on_call = on_call

        disk.on_call = on_call
        logs = DirectoryLogs(access, disk)
        assert logs.bounds("t", 0) == (0, 4)
        pieces = logs.pieces(OffsetRange("t", 0, 0, 4), 1)
        assert [piece.range[2:] for piece in pieces] == [(0, 2), (2, 4)]
        assert logs.offset_at("t", 0, NOW_MS) == 0
        chunks = (
            chunk
            for piece in pieces
            for chunk in read_directory_piece(piece, access, 99, check_crcs=True, filesystem=disk)
        )
        assert b"".join(chunk.batches for chunk in chunks) == batches(0, 1, 2, 3)
        disk.on_call = None
        if calls < nth:
            break


@pytest.mark.parametrize("stage", ["", ".swap"])
def test_records_behind_a_gap_are_looked_for_in_what_took_the_place(stage: str) -> None:
    """M20: the segment being read and the next one become one, whose end lies behind the gap."""
    disk = disk_with(b0=batches(0, 1), b4=batches(4, 5), b8=batches(8))
    piece = Piece(OffsetRange("t", 0, 0, 9), T0, None, 0)
    chunks = read_directory_piece(piece, ACCESS, 1 << 20, check_crcs=True, filesystem=disk)
    first = next(chunks)
    for base in (0, 4):
        disk.rename(f"{T0}/{base:020d}.log", f"{T0}/{base:020d}.log.deleted")
    disk.open_write(f"{T0}/{0:020d}.log{stage}").pwrite(batches(1, 5), 0)
    rows = rows_of(record_batches([first, *chunks], piece.range, SPARK_SCHEMA))
    assert [row["offset"] for row in rows] == [0, 1, 5, 8]


def test_a_damaged_checkpoint_is_never_half_believed() -> None:
    disk = disk_with(b0=batches(0))
    disk.write_file_atomically("/a/log-start-offset-checkpoint", b"0\n1\nt zero 0\n")
    with pytest.raises(CorruptCheckpoint, match="log-start-offset-checkpoint"):
        DirectoryLogs(ACCESS, disk).bounds("t", 0)


def entries(*pairs: tuple[int, int]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(pairs, np.int64).reshape(-1, 2)


def test_a_range_is_cut_behind_index_entries() -> None:
    """M21: pieces of about the target; a last one below a quarter of it joins the one before."""

    def cut(from_offset: int, to_offset: int, target_bytes: int) -> list[Piece]:
        cuts = Cuts(OffsetRange("t", 0, from_offset, to_offset), target_bytes)
        cuts.add_segment(0, 950, entries((9, 100), (49, 500), (89, 900)))
        cuts.add_segment(100, 20, entries())
        return cuts.pieces("/p")

    assert [
        (each.range[2:], each.start_position, each.size_bytes) for each in cut(5, 130, 400)
    ] == [((5, 50), (0, 0), 500), ((50, 130), (0, 500), 470)]
    assert [each.range[2:] for each in cut(5, 130, 1)] == [
        (5, 10),
        (10, 50),
        (50, 90),
        (90, 100),
        (100, 130),
    ]
    assert Cuts(OffsetRange("t", 0, 3, 4), 1).pieces("/p") == [
        Piece(OffsetRange("t", 0, 3, 4), "/p", None, 0)
    ]


# ---- Arrow


def arrow(data: bytes, *, schema: pa.Schema = SPARK_SCHEMA, **bounds: int) -> list[pa.RecordBatch]:
    chunks = [Chunk(data, "/a/t-0/x.log", 1_000)]
    return list(record_batches(chunks, OffsetRange("t", 0, 0, 99), schema, **bounds))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_an_error_and_not_inflated(codec: Codec) -> None:
    """M02: bounded before memory is taken; topic, offset, file and byte are named."""
    sound = stored_batch([record(0)])
    bomb = stored_batch([record(1, bytes(1 << 20))], codec=codec)
    with pytest.raises(CorruptLog, match="t-0: the batch at offset 1 ") as refused:
        arrow(sound + bomb, max_decompressed_bytes=1 << 16)
    assert refused.value.position == 1_000 + len(sound)
    assert refused.value.file == "/a/t-0/x.log"
    assert len(arrow(sound + bomb, max_decompressed_bytes=1 << 21)) >= 1


def test_what_lies_before_an_error_is_given_first() -> None:
    """M02: rows of the chunks before DataLost, and of the batches before a broken one."""

    def chunks() -> list[Chunk]:
        return [Chunk(batches(0, 1), "", 0), Chunk(batches(2), "", 0)]

    def losing() -> Iterator[Chunk]:
        yield from chunks()
        raise DataLost(OffsetRange("t", 0, 3, 5), "gone")

    given = record_batches(losing(), OffsetRange("t", 0, 0, 5), SPARK_SCHEMA)
    assert next(given).num_rows == 3
    with pytest.raises(DataLost):
        next(given)
    given = record_batches(
        [Chunk(batches(0, 1) + b"?" * 80, "f", 7)], OffsetRange("t", 0, 0, 5), SPARK_SCHEMA
    )
    assert next(given).num_rows == 2
    with pytest.raises(CorruptLog) as broken:
        next(given)
    assert broken.value.position == 7 + len(batches(0, 1))


def test_a_time_without_microseconds_is_an_error() -> None:
    """M02: as in the Kafka source, which throws; in milliseconds nothing would be wrong."""
    data = stored_batch([record(0, stamp=1 << 62)])
    with pytest.raises(CorruptLog, match="has no microseconds"):
        arrow(data)
    plain = pa.schema([SPARK_SCHEMA.field("offset"), ("timestamp", pa.timestamp("ms", tz="UTC"))])
    assert arrow(data, schema=plain)[0].num_rows == 1


def test_a_record_that_is_larger_than_an_arrow_batch_has_one_of_its_own() -> None:
    data = stored_batch([record(0), record(1, bytes(5_000)), record(2)])
    assert [each.num_rows for each in arrow(data, batch_bytes=100)] == [1, 1, 1]


@pytest.mark.parametrize("value_bytes", [0, 90, 99, 100, 124, 125, 126, 200, 251, 5_000])
def test_memory_without_room_for_headers(value_bytes: int) -> None:
    headers = ((b"h" * 40, b"x" * 60), (b"i", None))
    some = [
        Record(offset, NOW_MS, b"k%d" % offset, bytes(value_bytes), headers) for offset in range(4)
    ]
    data = stored_batch(some)
    schema = SPARK_SCHEMA.remove(SPARK_SCHEMA.get_field_index("headers"))
    whole = pa.Table.from_batches(arrow(data))
    given = pa.Table.from_batches(arrow(data, schema=schema, batch_bytes=100))
    assert given.equals(whole.drop_columns(["headers"]))
    assert whole["headers"].to_pylist()[0] == [
        {"key": "h" * 40, "value": b"x" * 60},
        {"key": "i", "value": None},
    ]


@pytest.mark.parametrize(
    "field",
    [
        ("key", pa.large_binary()),
        ("value", pa.utf8()),
        ("timestamp", pa.timestamp("ns", tz="UTC")),
        ("timestamp", pa.timestamp("us")),
        ("headers", pa.list_(pa.binary())),
        ("headers", pa.list_(pa.struct([("key", pa.utf8())]))),
        ("leaderEpoch", pa.int32()),
    ],
)
def test_other_columns_are_refused(field: tuple[str, pa.DataType]) -> None:
    with pytest.raises(ValueError, match=f"No column of records is {field[0]}"):
        arrow(batches(0), schema=pa.schema([field]))
    with pytest.raises(ValueError, match="without columns"):
        arrow(batches(0), schema=pa.schema([]))


def test_everything_that_travels_can_be_pickled() -> None:
    """M21: to workers, and errors back from them."""
    wanted = OffsetRange("t", 3, 1, 5)
    for access in (
        ACCESS,
        Access(urls=("https://h:1",), credentials=Basic("u", "p"), tls=Tls(ca_file="ca.pem")),
        Access(urls=("http://h:1",), credentials=Bearer("token")),
    ):
        assert pickle.loads(pickle.dumps(access)) == access
    piece = Piece(wanted, "/a/t-3", (0, 10), 5)
    assert pickle.loads(pickle.dumps(piece)) == piece
    for error in (
        DataLost(wanted, "why"),
        CorruptLog(wanted, 4, "its CRC is wrong", file="/a/t-3/0.log", position=9),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (str(again), again.details) == (str(error), error.details)
    assert "t-3 [1, 5)" in str(DataLost(wanted, "why"))


def test_an_access_names_directories_or_daemons() -> None:
    for paths, urls in (((), ()), (("/a",), ("http://h:1",))):
        with pytest.raises(ValueError, match="Give either"):
            Access(paths=paths, urls=urls)
    assert "secret" not in repr(Access(urls=("http://h:1",), credentials=Bearer("secret")))
    with pytest.raises(ValueError, match="host:port"):
        open_logs(Access(urls=("ftp://h:1",)))


def proofs(disk: SimFilesystem, entry: CheckedOffsets) -> None:
    """What a daemon keeps of t-0 in /a under a checksum."""
    directory_id, topic_id = uuid4(), uuid4()
    meta = MetaProperties("c", 1, directory_id)
    disk.write_file_atomically("/a/meta.properties", encode_meta_properties(meta, NOW_MS))
    disk.write_file_atomically(f"{T0}/partition.metadata", encode_partition_metadata(topic_id))
    data = encode_proofs(encode_id(directory_id), {LogKey(encode_id(topic_id), 0): entry})
    disk.write_file_atomically("/a/kafkalog.checkpoint", data)


def test_a_lost_range_is_lost_until_it_is_accepted() -> None:
    gapless, plain = CheckedOffsets(is_gapless=True), CheckedOffsets()
    for orphan, entry, lost in (
        (3, plain, (3, 6)),
        (4, plain, (4, 6)),
        (None, gapless, (3, 6)),
        (None, plain, None),
        (3, CheckedOffsets(accepted_losses=((3, 6),)), None),
        (None, CheckedOffsets(accepted_losses=((3, 6),), is_gapless=True), None),
        (3, CheckedOffsets(accepted_losses=((3, 5),)), (6, 6)),
        (0, plain, None),  # the segment is there
    ):
        disk = disk_with(b0=batches(0, 1, 2), b7=batches(7, 8))
        proofs(disk, entry)
        if orphan is not None:
            disk.open_write(f"{T0}/{orphan:020d}.index")
        for start in range(8):
            piece = Piece(OffsetRange("t", 0, start, 9), T0, None, 0)
            there = [each for each in (0, 1, 2, 7, 8) if each >= start]
            if lost is None or start > lost[1]:
                assert values(disk, piece) == there, (orphan, entry, start)
                continue
            with pytest.raises(DataLost) as error:
                values(disk, piece)
            missing = OffsetRange("t", 0, max(start, lost[0]), lost[1] + 1)
            assert error.value.missing == missing, (orphan, entry, start)
            assert values(disk, Piece(piece.range._replace(to_offset=3), T0, None, 0)) == [
                each for each in there if each < 3
            ]


def test_a_loss_in_front_of_the_log_is_in_its_bounds() -> None:
    """Else a read from the earliest offset on would not meet it. Also while one is deleted."""
    disk = disk_with(b3=batches(3, 4))
    disk.open_write(f"{T0}/{0:020d}.index")
    assert DirectoryLogs(ACCESS, disk).bounds("t", 0) == Bounds(0, 5)
    with pytest.raises(DataLost, match=r"t-0 \[0, 3\)"):
        values(disk, Piece(OffsetRange("t", 0, 0, 5), T0, None, 0))
    proofs(disk, CheckedOffsets(accepted_losses=((0, 2),)))
    assert DirectoryLogs(ACCESS, disk).bounds("t", 0) == Bounds(3, 5)
    proofs(disk, CheckedOffsets())
    disk.open_write(f"{T0}/{0:020d}.log.deleted")
    assert DirectoryLogs(ACCESS, disk).bounds("t", 0) == Bounds(3, 5)
    disk.unlink(f"{T0}/{0:020d}.log.deleted")
    proofs(disk, CheckedOffsets(log_start_offset=3))  # retention went past the loss
    assert DirectoryLogs(ACCESS, disk).bounds("t", 0) == Bounds(3, 5)
    proofs(disk, CheckedOffsets(log_start_offset=3, accepted_losses=((0, 1),)))
    assert DirectoryLogs(ACCESS, disk).bounds("t", 0) == Bounds(3, 5)
