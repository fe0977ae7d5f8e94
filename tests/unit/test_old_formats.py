"""Goal: segments of message formats v0 and v1 are left as they are, refused by name, and converted.

Method: a partition of all formats on a simulated disk; its loads, reads, deletions, conversion.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kafkalog.cleaner.plan import LogToClean
from kafkalog.cli.main import make_cli
from kafkalog.errors import CorruptBatch, UnsupportedMessageFormat
from kafkalog.format.disk.file_names import CLEAN_SHUTDOWN, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX
from kafkalog.format.records.record_batch import Codec
from kafkalog.log.format_conversion import OldSegment, convert_partition, needs_conversion
from kafkalog.log.inspect.directory_check import verify_directory
from kafkalog.log.inspect.findings import FindingCode
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.retention import execute
from kafkalog.log.values import Isolation
from tests.naive.message_sets import wrapper
from tests.old_formats import (
    DIRECTORY,
    EVERYTHING,
    LINES,
    LOG_END,
    NOW_MS,
    OLD_BASES,
    SEGMENTS,
    OldWorld,
    logs_of,
    path_of,
    plain,
    planted,
    v1,
    v2,
)
from tests.partition_world import batch, checked
from tests.sim.sim_clock import SimClock

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.log.recovery.corruption_policy import Corruption
    from tests.sim.sim_filesystem import SimFilesystem

OLD_ONLY = {base: SEGMENTS[base] for base in (0, 10)}


def old_bases(world: OldWorld) -> tuple[int, ...]:
    return tuple(each.base_offset for each in world.log.segments if each.holds_messages)


def refused(world: OldWorld, offset: int) -> dict[str, object]:
    with pytest.raises(UnsupportedMessageFormat) as found:
        world.log.read(offset, EVERYTHING, Isolation.LOG_END)
    assert found.value.kafka_error == "UNSUPPORTED_FOR_MESSAGE_FORMAT"
    assert f"kafkalog segments convert {DIRECTORY} --execute" in found.value.message
    assert DIRECTORY not in found.value.pathless_message
    assert "segments convert LOG_DIR/orders-0" in found.value.pathless_message
    return dict(found.value.details)


# ---- loading


@pytest.mark.parametrize("corruption", ["kafka", "keep"])
def test_they_are_loaded_and_not_read(corruption: Corruption) -> None:
    """After a crash and after a clean stop; no byte changes, and later segments are served."""
    world = OldWorld(corruption=corruption)
    for _ in range(3):
        assert world.log.log_end_offset == LOG_END
        assert old_bases(world) == OLD_BASES
        assert logs_of(world.disk) == {path_of(base)[-24:]: data for base, data in SEGMENTS.items()}
        assert refused(world, 0) == {"base_offset": 0, "last_offset": 9}
        assert refused(world, 19) == {"base_offset": 10, "last_offset": 19}
        assert refused(world, 25) == {"base_offset": 20, "last_offset": 29}
        assert world.lines(30) == [line for line in LINES if line[0] >= 30]
        world.reopen()


@pytest.mark.parametrize("corruption", ["kafka", "keep"])
def test_a_log_that_ends_with_one_goes_on_in_a_new_segment(corruption: Corruption) -> None:
    world = OldWorld(planted(OLD_ONLY), corruption=corruption)
    assert world.bases() == [0, 10, 20]
    assert world.log.log_end_offset == 20
    appended = world.log.append(checked(batch([b"new"])), synced=True)
    assert appended.first_offset == 20
    world.flush()
    for is_clean in (True, False):
        if is_clean:
            world.reopen()
        else:
            world.log.close_handles()
            world.open(clean=False)
        assert world.bases() == [0, 10, 20]
        assert old_bases(world) == (0, 10)
        assert [each[3] for each in world.lines(20)] == [b"new"]
        assert refused(world, 0) == {"base_offset": 0, "last_offset": 9}


def test_a_clean_load_of_a_log_that_ends_with_one() -> None:
    """As a Kafka before 0.11 left it: with indexes, and without a segment after it."""
    world = OldWorld(planted(OLD_ONLY))
    world.log.close_handles()
    for suffix in (".log", OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX):
        world.disk.unlink(path_of(20, suffix))
    for name in world.disk.list_dir(DIRECTORY):
        if name.endswith(".snapshot"):
            world.disk.unlink(f"{DIRECTORY}/{name}")
    before = logs_of(world.disk)
    world.open(clean=True)
    assert world.log.log_end_offset == 20
    assert world.bases() == [0, 10, 20]
    assert old_bases(world) == (0, 10)
    assert logs_of(world.disk) == before


def test_a_torn_message_at_the_end_is_cut_and_kept() -> None:
    data = SEGMENTS[10]
    world = OldWorld(planted({0: SEGMENTS[0], 10: data + data[:30]}))
    assert world.log.log_end_offset == 20
    assert logs_of(world.disk)[path_of(10)[-24:]] == data
    torn = [name for name in world.disk.list_dir(DIRECTORY) if name.endswith(".torn")]
    assert [world.disk.read_file(f"{DIRECTORY}/{name}") for name in torn] == [data[:30]]


@pytest.mark.parametrize("corruption", ["kafka", "keep"])
def test_a_damaged_message_changes_nothing(corruption: Corruption) -> None:
    data = bytearray(SEGMENTS[10])
    data[60] ^= 0xFF
    disk = planted(SEGMENTS | {10: bytes(data)})
    before = logs_of(disk)
    with pytest.raises(CorruptBatch, match="v0 or v1 fails its CRC"):
        OldWorld(disk, corruption=corruption)
    assert logs_of(disk) == before


def test_indexes_are_rebuilt_from_messages() -> None:
    """Retention by time needs the largest timestamp of a segment."""
    world = OldWorld(config=LogConfig(index_interval_bytes=50))
    first, second, third, _ = world.log.segments.values
    assert first.largest_timestamp_ms() == first.last_modified_ms
    assert second.largest_timestamp_ms() == NOW_MS + 500
    assert third.largest_timestamp_ms() == NOW_MS + 600
    assert second.offset_index.entry_count() > 0


def test_old_messages_between_v2_batches_are_refused_where_they_lie() -> None:
    """The format was lowered in the middle of a segment: only a read of it finds out."""
    segments = {0: v2(0, 1) + plain(1, v1(2, 3)), 4: v2(4)}
    world = OldWorld(planted(segments))
    world.reopen()
    assert [line[0] for line in world.lines(0, 2)] == [0, 1]
    assert refused(world, 2) == {"base_offset": 2, "last_offset": 3}
    assert [line[0] for line in world.lines(4)] == [4]


# ---- what else is asked of them


def test_look_ups_by_time_are_refused_where_they_lead_into_one() -> None:
    world = OldWorld()
    limit = Isolation.LOG_END
    with pytest.raises(UnsupportedMessageFormat):
        world.log.offset_for_timestamp(NOW_MS + 400, limit)
    with pytest.raises(UnsupportedMessageFormat):
        world.log.offset_for_timestamp(-3, limit)
    earliest, latest = (world.log.offset_for_timestamp(each, limit) for each in (-2, -1))
    assert earliest is not None
    assert latest is not None
    assert (earliest.offset, latest.offset) == (0, LOG_END)
    assert world.log.offset_for_timestamp(NOW_MS + 86_400_000 * 9, limit) is None


def retained(world: OldWorld, now_ms: int) -> list[int]:
    base = execute.begin(world.log, execute.plan_of(world.log, now_ms))
    execute.raise_start(world.log, now_ms, base)
    execute.finish(world.log)
    return world.bases()


def test_records_are_deleted_and_retention_takes_the_segments() -> None:
    world = OldWorld()
    assert world.log.delete_records(15) == 15
    assert retained(world, NOW_MS) == [10, 20, 30]
    assert refused(world, 15) == {"base_offset": 10, "last_offset": 19}
    assert world.log.delete_records(30) == 30
    assert retained(world, NOW_MS) == [30]
    assert world.lines(30) == [line for line in LINES if line[0] >= 30]
    world.reopen()
    assert (world.log.log_start_offset, old_bases(world)) == (30, ())


def test_time_and_size_retain_them_like_others() -> None:
    day = 86_400_000
    world = OldWorld(config=LogConfig(retention_ms=day))
    assert retained(world, NOW_MS + day + 400) == [10, 20, 30]  # format v0: when it was modified
    assert retained(world, NOW_MS + day + 550) == [20, 30]
    sized = OldWorld(config=LogConfig(retention_bytes=len(SEGMENTS[30]) + len(SEGMENTS[20])))
    assert retained(sized, NOW_MS) == [20, 30]


def test_a_compacted_log_is_not_cleaned_before_its_conversion() -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    world = OldWorld(config=config)
    with pytest.raises(UnsupportedMessageFormat, match="Offsets 0 to 9"):
        LogToClean.of(world.log, None, NOW_MS)
    world.log.close_handles()
    convert_partition(world.disk, DIRECTORY, clock=SimClock())
    world.open(clean=False)
    assert LogToClean.of(world.log, None, NOW_MS).first_uncleanable_offset == 30


# ---- conversion


def converted(disk: SimFilesystem) -> OldWorld:
    convert_partition(disk, DIRECTORY, clock=SimClock())
    return OldWorld(disk)


def test_all_of_it_is_converted() -> None:
    disk = planted()
    sizes = {base: len(data) for base, data in SEGMENTS.items()}
    assert needs_conversion(disk, DIRECTORY) == tuple(
        OldSegment(base, path_of(base)[-24:], sizes[base]) for base in OLD_BASES
    )
    done = convert_partition(disk, DIRECTORY, clock=SimClock())
    assert [(each.base_offset, each.message_count) for each in done] == [(0, 10), (10, 7), (20, 2)]
    assert [each.new_size_bytes for each in done] == [
        disk.stat(path_of(base)).size for base in OLD_BASES
    ]
    assert needs_conversion(disk, DIRECTORY, is_thorough=True) == ()
    found = verify_directory(DIRECTORY, disk, is_compacted=True)
    assert {(each.file[:20], each.code) for each in found} == {  # it was not asked for
        (f"{30:020d}", FindingCode.MISSING_FILE)
    }
    assert disk.read_file(path_of(30)) == SEGMENTS[30]
    for number, base in enumerate(OLD_BASES):
        assert disk.stat(path_of(base)).mtime_ms == NOW_MS + number * 86_400_000
    world = OldWorld(disk)
    assert world.lines() == LINES
    assert old_bases(world) == ()


def test_a_converted_log_is_sound_after_a_clean_stop() -> None:
    """The mark of the clean stop stays true: its indexes are trusted."""
    world = OldWorld(config=LogConfig(index_interval_bytes=50))
    world.flush()
    world.log.close()
    convert_partition(world.disk, DIRECTORY, clock=SimClock())
    world.open(clean=True)
    assert world.lines() == LINES
    world.config = replace(world.config, cleanup_policy=frozenset({"compact"}))
    world.reopen()
    check_invariants(world.log)
    for offset in (line[0] for line in LINES):
        assert world.lines(offset)[-1] == LINES[-1]
    found = world.log.offset_for_timestamp(NOW_MS + 15, Isolation.LOG_END)
    assert found is not None
    assert found.offset == 15


def test_a_conversion_leaves_nothing_and_can_be_repeated() -> None:
    disk = planted()
    convert_partition(disk, DIRECTORY, clock=SimClock())
    before = {name: disk.read_file(f"{DIRECTORY}/{name}") for name in disk.list_dir(DIRECTORY)}
    assert not [name for name in before if not name.endswith((".log", ".index", ".timeindex"))]
    assert convert_partition(disk, DIRECTORY, clock=SimClock()) == ()
    assert {name: disk.read_file(f"{DIRECTORY}/{name}") for name in before} == before


def test_what_a_crash_left_after_the_last_message_is_kept() -> None:
    data = SEGMENTS[10]
    disk = planted({0: SEGMENTS[0], 10: data + data[:30]})
    world = converted(disk)
    assert world.log.log_end_offset == 20
    torn = [name for name in disk.list_dir(DIRECTORY) if name.endswith(".torn")]
    assert [disk.read_file(f"{DIRECTORY}/{name}") for name in torn] == [data[:30]]
    assert world.lines() == [line for line in LINES if line[0] < 20]


def test_the_zeros_of_a_preallocated_file_are_left_out() -> None:
    disk = planted({0: SEGMENTS[0] + bytes(5_000)})
    world = converted(disk)
    assert world.lines() == [line for line in LINES if line[0] < 10]
    assert not [name for name in disk.list_dir(DIRECTORY) if name.endswith(".torn")]


DAMAGED = bytearray(SEGMENTS[10])
DAMAGED[60] ^= 0xFF


@pytest.mark.parametrize(
    ("segments", "is_stopped", "base_offset", "reason"),
    [
        (SEGMENTS | {10: bytes(DAMAGED)}, False, 10, "no whole message: legacy"),
        (SEGMENTS | {10: SEGMENTS[10][:-3]}, False, 10, "no whole message: partial"),
        ({0: SEGMENTS[0][:-3]}, True, 0, "no whole message: partial"),
        ({0: bytes(DAMAGED)}, False, 0, "no whole message: legacy"),
        ({0: plain(1, v1(0, 5, 9)), 9: v2(9)}, False, 0, "offset 0 does not follow"),
        ({0: wrapper(1, Codec.GZIP, v1(3, 3))}, False, 0, "offset 3 does not follow 3"),
    ],
)
def test_damage_ends_a_conversion(
    segments: dict[int, bytes], is_stopped: bool, base_offset: int, reason: str
) -> None:
    """Segments before it are converted, it and later ones are not changed."""
    disk = planted(segments)
    if is_stopped:
        disk.open_write(f"/logs/{CLEAN_SHUTDOWN}").pwrite(b"{}", 0)
    with pytest.raises(CorruptBatch, match=reason) as found:
        convert_partition(disk, DIRECTORY, clock=SimClock())
    assert found.value.file == path_of(base_offset)
    later = {path_of(base)[-24:]: data for base, data in segments.items() if base >= base_offset}
    assert later.items() <= logs_of(disk).items()
    assert not [name for name in disk.list_dir(DIRECTORY) if name.endswith(".cleaned")]
    first_old = needs_conversion(disk, DIRECTORY)[0].base_offset
    assert first_old == base_offset


def test_messages_between_v2_batches_are_found_by_a_thorough_look() -> None:
    disk = planted({0: v2(0, 1) + plain(1, v1(2, 3)) + v2(4)})
    assert needs_conversion(disk, DIRECTORY) == ()
    assert [each.base_offset for each in needs_conversion(disk, DIRECTORY, is_thorough=True)] == [0]
    done = convert_partition(disk, DIRECTORY, is_thorough=True, clock=SimClock())
    assert [each.message_count for each in done] == [2]
    assert [line[0] for line in OldWorld(disk).lines()] == [0, 1, 2, 3, 4]


def test_a_segment_that_grows_too_large_becomes_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalog.log.segment.segment_swap.MAX_SEGMENT_BYTES", 2_000)
    monkeypatch.setattr("kafkalog.log.format_conversion.CHUNK_BYTES", 1_000)
    count = 200
    disk = planted({0: plain(1, v1(*range(count))), count: v2(count)})
    convert_partition(disk, DIRECTORY, clock=SimClock())
    world = OldWorld(disk)
    first, second, last = world.bases()
    assert (first, last) == (0, count)
    assert disk.stat(path_of(first)).size <= 2_000 < disk.stat(path_of(second)).size + 2_000
    assert [line[0] for line in world.lines(0, count + 1)] == list(range(count + 1))


# ---- the command


def plant_here(log_dir: Path) -> Path:
    directory = log_dir / "orders-0"
    directory.mkdir()
    for base, data in SEGMENTS.items():
        (directory / f"{base:020d}.log").write_bytes(data)
    return directory


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(make_cli(), ["segments", "convert", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_shows_and_does(tmp_path: Path) -> None:
    directory = plant_here(tmp_path)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    status, stdout, stderr = run(tmp_path)
    assert (status, stderr) == (0, "Nothing was changed; add --execute.\n")
    lines = [line.split() for line in stdout.splitlines()]
    assert [line[:2] for line in lines[1:]] == [
        ["orders-0", f"{base:020d}.log"] for base in OLD_BASES
    ]
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    status, stdout, stderr = run(directory, "--execute", "--output", "json")
    assert (status, stderr) == (0, "")
    document = json.loads(stdout)
    assert document["dry_run"] is False
    assert [each["messages"] for each in document["segments"]] == [10, 7, 2]
    assert run(directory) == (0, "No segment is in message format v0 or v1.\n", "")


def test_the_command_says_where_a_torn_tail_is(tmp_path: Path) -> None:
    """And that zeros are gone."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(SEGMENTS[0])
    (directory / f"{10:020d}.log").write_bytes(SEGMENTS[10] + SEGMENTS[10][:30])
    zeros = tmp_path / "zeros-0"
    zeros.mkdir()
    (zeros / f"{0:020d}.log").write_bytes(SEGMENTS[0] + bytes(50))
    status, _, stderr = run(tmp_path, "--execute")
    assert status == 0
    (torn,) = directory.glob("*.torn")
    said = f"30 bytes after the last whole message of {10:020d}.log are in {torn}"
    assert f"{directory}: {said}\n" in stderr
    gone = f"50 bytes after the last whole message of {0:020d}.log were zeros and are gone"
    assert f"{zeros}: {gone}\n" in stderr


def test_the_command_takes_a_directory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it is spelled; and the lock is in the log directory itself, not beside a link."""
    log_dir = tmp_path / "logs"
    log_dir.mkdir()
    directory = plant_here(log_dir)
    link = tmp_path / "orders-0"
    link.symlink_to(directory)
    monkeypatch.chdir(log_dir)
    names = (directory, f"{directory}/", "orders-0", link, log_dir)
    status, stdout, _ = run(*names)
    assert (status, len(stdout.splitlines())) == (0, 1 + len(OLD_BASES))
    from kafkalog.env.system_filesystem import SystemFilesystem

    lock = SystemFilesystem().lock(str(log_dir / ".lock"))
    status, _, stderr = run(link, "--execute")
    lock.release()
    assert status == 1
    assert "is served" in stderr


def test_the_command_names_damage_and_goes_on(tmp_path: Path) -> None:
    directory = plant_here(tmp_path)
    bad = tmp_path / "orders-1"
    bad.mkdir()
    (bad / f"{0:020d}.log").write_bytes(bytes(DAMAGED))
    status, _, stderr = run(tmp_path, "--execute")
    assert status == 3
    assert f"Error: {bad}: Not converted, because it is damaged" in stderr
    assert run(directory) == (0, "No segment is in message format v0 or v1.\n", "")


def test_the_command_needs_a_directory_that_nobody_serves(tmp_path: Path) -> None:
    from kafkalog.env.system_filesystem import SystemFilesystem

    directory = plant_here(tmp_path)
    lock = SystemFilesystem().lock(str(tmp_path / ".lock"))
    status, _, stderr = run(directory, "--execute")
    lock.release()
    assert status == 1
    assert "is served: stop the daemon or the broker first" in stderr
    assert run(directory, "--execute")[0] == 0
    empty = tmp_path / "nothing"
    empty.mkdir()
    assert run(empty)[0] == 2
