"""Goal: the simulated disk loses what POSIX allows it to lose, and never more.
Method: small histories with known durable parts, cut in every mode; stops; enumeration.
"""

from __future__ import annotations

import pytest

from tests.sim.crash_enumeration import CrashPoint, enumerate_crashes
from tests.sim.sim_crash import ALL_MODES, CrashMode
from tests.sim.sim_faults import Effect, Fault, SimulatedCrash
from tests.sim.sim_filesystem import SimFilesystem


def _disk() -> SimFilesystem:
    """/d is durable and empty."""
    disk = SimFilesystem()
    disk.make_dir("/d")
    disk.sync_all()
    return disk


def _with_synced_file(content: bytes) -> SimFilesystem:
    disk = _disk()
    file = disk.open_write("/d/a")
    file.pwrite(content, 0)
    file.sync()
    disk.sync_dir("/d")
    return disk


@pytest.mark.parametrize("mode", ALL_MODES)
def test_synced_bytes_and_names_survive_every_mode(mode: CrashMode) -> None:
    disk = _with_synced_file(b"x" * 10_000)
    disk.open_write("/d/a").pwrite(b"y" * 10_000, 10_000)
    disk.open_write("/d/b").pwrite(b"z", 0)
    for seed in range(20):
        left = disk.crash(mode, seed)
        assert left.read_file("/d/a")[:10_000] == b"x" * 10_000
        assert set(left.list_dir("/d")) <= {"a", "b"}
        assert set(left.read_file("/d/a")[10_000:]) <= {0, ord("y")}
    assert disk.read_file("/d/a")[10_000:] == b"y" * 10_000  # cutting leaves this disk alone


def test_a_sync_of_the_file_does_not_keep_its_name() -> None:
    disk = _disk()
    file = disk.open_write("/d/a")
    file.pwrite(b"x", 0)
    file.sync()
    assert disk.crash(CrashMode.DROP_ALL).list_dir("/d") == []
    assert disk.durable_files() == {}
    disk.sync_dir("/d")
    assert disk.crash(CrashMode.DROP_ALL).read_file("/d/a") == b"x"
    assert disk.durable_files() == {"/d/a": b"x"}


def test_a_sync_of_the_directory_does_not_keep_the_bytes() -> None:
    disk = _disk()
    disk.open_write("/d/a").pwrite(b"xyz", 0)
    disk.sync_dir("/d")
    assert disk.crash(CrashMode.DROP_ALL).read_file("/d/a") == b""
    assert disk.crash(CrashMode.NAMES_ONLY).read_file("/d/a") == b""
    assert disk.crash(CrashMode.ZEROED_DATA).read_file("/d/a") == b"\0\0\0"
    assert disk.crash(CrashMode.KEEP_ALL).read_file("/d/a") == b"xyz"


def test_rename_is_old_or_new_but_never_neither() -> None:
    disk = _with_synced_file(b"old")
    file = disk.open_write("/d/a.tmp")
    file.pwrite(b"new", 0)
    file.sync()
    disk.rename("/d/a.tmp", "/d/a")
    seen = {disk.crash(mode, s).read_file("/d/a") for mode in ALL_MODES for s in range(10)}
    assert seen == {b"old", b"new"}


def test_torn_writes_end_at_a_sector_or_at_any_byte() -> None:
    disk = _with_synced_file(b"")
    disk.open_write("/d/a").pwrite(b"x" * 5000, 0)
    sectors = {len(disk.crash(CrashMode.TORN_SECTOR, s).read_file("/d/a")) for s in range(40)}
    assert len(sectors) > 3
    assert all(size % 512 == 0 and size < 5000 for size in sectors)
    sizes = {len(disk.crash(CrashMode.TORN_BYTE, s).read_file("/d/a")) for s in range(40)}
    assert any(size % 512 for size in sizes)


def test_prefix_keeps_the_order_of_the_whole_disk() -> None:
    disk = _disk()
    for number in range(6):
        disk.open_write(f"/d/{number}").pwrite(bytes([number]), 0)
    lengths = set()
    for seed in range(60):
        left = disk.crash(CrashMode.PREFIX, seed)
        names = left.list_dir("/d")
        assert names == [str(number) for number in range(len(names))]
        assert all(left.read_file(f"/d/{name}") for name in names[:-1])
        lengths.add(len(names))
    assert lengths == set(range(7))


def test_a_random_subset_may_lose_a_page_in_the_middle() -> None:
    disk = _with_synced_file(b"")
    disk.open_write("/d/a").pwrite(b"x" * 4096 * 4, 0)
    shapes = {
        bytes(disk.crash(CrashMode.SUBSET, seed).read_file("/d/a")[::4096]) for seed in range(100)
    }
    assert b"x\0xx" in shapes
    assert b"" in shapes


def test_a_failed_sync_loses_its_pages_and_the_next_one_lies() -> None:
    disk = _with_synced_file(b"old")
    file = disk.open_write("/d/a")
    file.pwrite(b"new", 0)
    disk.faults.add(Fault(Effect.LOSE_SYNC, kinds=frozenset({"datasync", "sync"})))
    with pytest.raises(OSError, match="simulated"):
        file.datasync()
    file.datasync()
    assert file.pread(3, 0) == b"old", "what a restart without a power cut would find"
    assert disk.crash(CrashMode.KEEP_ALL).read_file("/d/a") == b"old"


def test_stop_happens_before_or_within_the_call() -> None:
    disk = _with_synced_file(b"")
    done = len(disk.operations)
    disk.stop_at(done + 1, is_partial=True)
    file = disk.open_write("/d/a")
    file.pwrite(b"ab", 0)
    with pytest.raises(SimulatedCrash):
        file.pwrite(b"cdef", 2)
    with pytest.raises(SimulatedCrash):
        disk.read_file("/d/a")
    assert disk.kill().read_file("/d/a") == b"abcd"


def test_enumeration_finds_the_missing_directory_sync() -> None:
    def careful(disk: SimFilesystem, done: list[bytes]) -> None:
        for value in (b"one", b"two"):
            disk.write_file_atomically("/d/c", value)
            done.append(value)

    def careless(disk: SimFilesystem, done: list[bytes]) -> None:
        file = disk.open_write("/d/c")
        file.pwrite(b"one", 0)
        file.sync()
        done.append(b"one")

    def check(disk: SimFilesystem, done: list[bytes], point: CrashPoint) -> None:
        found = disk.read_file("/d/c") if disk.exists("/d/c") else None
        allowed = {done[-1] if done else None, *[b"one", b"two"][len(done) : len(done) + 1]}
        assert found in allowed

    assert enumerate_crashes(list[bytes], careful, check, new_disk=_disk) > 100
    with pytest.raises(AssertionError) as caught:
        enumerate_crashes(list[bytes], careless, check, new_disk=_disk)
    assert "CrashPoint" in caught.value.__notes__[0]
