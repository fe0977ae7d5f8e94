"""Goal: the machine's file system and the simulated one keep the same contract.
Method: one suite over both; every rule of kafkalog/env/filesystem.py that a caller can see.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from kafkalog.env.system_filesystem import SystemFilesystem
from tests.sim.sim_filesystem import SimFilesystem

if TYPE_CHECKING:
    from pathlib import Path

    from kafkalog.env.filesystem import Filesystem


@pytest.fixture(params=["system", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Filesystem, str]:
    root = str(tmp_path)
    if request.param == "system":
        return SystemFilesystem(), root
    simulated = SimFilesystem()
    simulated.make_dir(root)
    return simulated, root


def test_bytes_come_back_from_where_they_were_written(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    file = fs.open_write(f"{root}/a")
    file.pwrite(b"hello", 3)
    assert file.size() == 8
    assert file.pread(100, 0) == b"\0\0\0hello"
    assert file.pread(2, 4) == b"el"
    assert file.pread(5, 8) == b""
    assert file.path == f"{root}/a"
    assert fs.read_file(f"{root}/a") == b"\0\0\0hello"


def test_gather_write_beyond_iov_max_is_whole(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    file = fs.open_write(f"{root}/a")
    parts = [bytes([number % 251]) * (number % 7) for number in range(2500)]
    file.pwritev(parts, 11)
    assert file.pread(1 << 20, 11) == b"".join(parts)
    file.pwritev([], 0)
    file.pwritev([b"", memoryview(b"xy"), bytearray(b"z")], 0)
    assert file.pread(3, 0) == b"xyz"


def test_reads_into_a_buffer_stop_at_the_end(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    file = fs.open_write(f"{root}/a")
    file.pwrite(b"0123456789", 0)
    buffer = bytearray(8)
    assert file.pread_into(buffer, 4) == 6
    assert bytes(buffer[:6]) == b"456789"
    assert file.pread_into(memoryview(buffer)[:2], 0) == 2
    assert bytes(buffer[:2]) == b"01"
    assert file.try_pread_into(bytearray(4), 10) in (0, None)
    assert file.try_pread_into(buffer, 0) in (8, None)


def _evict(fs: Filesystem, path: str) -> None:
    if isinstance(fs, SimFilesystem):
        fs.evict(path)
        return
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


@pytest.mark.parametrize("is_cached", [True, False])
def test_a_scan_leaves_the_page_cache_as_it_was(
    place: tuple[Filesystem, str], *, is_cached: bool
) -> None:
    """A walk over a cold file evicts nobody's pages, one over a hot file does not cool it."""
    fs, root = place
    data = bytes(range(256)) * 4096
    files = [fs.open_write(f"{root}/{name}") for name in ("scanned", "other")]
    for file in files:
        file.pwrite(data, 0)
        file.sync()
        if not is_cached:
            _evict(fs, file.path)
    scan = fs.open_scan(files[0].path)
    piece, read = bytearray(100_001), b""
    while count := scan.pread_into(piece, len(read)):
        read += bytes(piece[:count])
    assert read == data
    asked = [file.try_pread_into(bytearray(4096), len(data) - 4096) for file in files]
    assert asked[0] == asked[1]


def test_truncate_cuts_and_extends_with_zeros(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    file = fs.open_write(f"{root}/a")
    file.pwrite(b"abcdef", 0)
    file.truncate(2)
    file.truncate(4)
    assert file.pread(10, 0) == b"ab\0\0"
    file.sync()
    file.datasync()


def test_opening_never_truncates_and_exclusive_refuses(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    with pytest.raises(FileNotFoundError):
        fs.open_write(f"{root}/a", create=False)
    with pytest.raises(FileNotFoundError):
        fs.open_read(f"{root}/a")
    with pytest.raises(FileNotFoundError):
        fs.open_write(f"{root}/missing/a")
    fs.open_write(f"{root}/a", exclusive=True).pwrite(b"x", 0)
    with pytest.raises(FileExistsError):
        fs.open_write(f"{root}/a", exclusive=True)
    assert fs.open_write(f"{root}/a", create=False).size() == 1


def test_closed_and_read_only_files_refuse(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    file = fs.open_write(f"{root}/a")
    file.close()
    file.close()
    with pytest.raises(OSError, match=r"descriptor") as closed:
        file.pread(1, 0)
    assert closed.value.errno == errno.EBADF
    with pytest.raises(OSError, match=r"descriptor") as read_only:
        fs.open_read(f"{root}/a").pwrite(b"x", 0)
    assert read_only.value.errno == errno.EBADF


def test_a_held_file_outlives_rename_and_unlink(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    fs.open_write(f"{root}/a").pwrite(b"kept", 0)
    held = fs.open_read(f"{root}/a")
    fs.rename(f"{root}/a", f"{root}/a.deleted")
    assert held.path == f"{root}/a"
    fs.unlink(f"{root}/a.deleted")
    assert held.pread(4, 0) == b"kept"
    with pytest.raises(FileNotFoundError):
        fs.unlink(f"{root}/a")


def test_rename_replaces_a_file_and_moves_a_directory(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    fs.open_write(f"{root}/a").pwrite(b"new", 0)
    fs.open_write(f"{root}/b").pwrite(b"older", 0)
    fs.rename(f"{root}/a", f"{root}/b")
    assert fs.read_file(f"{root}/b") == b"new"
    fs.make_dir(f"{root}/d/e")
    fs.make_dir(f"{root}/d/e")
    fs.open_write(f"{root}/d/e/f")
    fs.rename(f"{root}/d", f"{root}/moved")
    assert fs.list_dir(root) == ["b", "moved"]
    assert fs.list_dir(f"{root}/moved/e") == ["f"]
    with pytest.raises(FileNotFoundError):
        fs.rename(f"{root}/none", f"{root}/x")
    fs.make_dir(f"{root}/full")
    with pytest.raises(OSError, match=r"not empty|exists"):
        fs.rename(f"{root}/full", f"{root}/moved")
    with pytest.raises(FileExistsError):
        fs.make_dir(f"{root}/b")
    with pytest.raises(NotADirectoryError):
        fs.open_write(f"{root}/b/x")


def test_listings_and_stats(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    fs.open_write(f"{root}/z").pwrite(b"12345", 0)
    fs.make_dir(f"{root}/m")
    fs.set_mtime_ms(f"{root}/z", 1_600_000_000_123)
    stats = fs.list_dir_stats(root)
    assert [(s.name, s.is_dir, s.is_file) for s in stats] == [
        ("m", True, False),
        ("z", False, True),
    ]
    assert (stats[1].size, stats[1].mtime_ms) == (5, 1_600_000_000_123)
    assert fs.stat(f"{root}/z").mtime_ms == 1_600_000_000_123
    assert fs.exists(f"{root}/z")
    assert not fs.exists(f"{root}/y")
    assert not fs.exists(f"{root}/z/below-a-file")
    with pytest.raises(FileNotFoundError):
        fs.stat(f"{root}/y")
    with pytest.raises(FileNotFoundError):
        fs.list_dir(f"{root}/y")


def test_links_and_trees(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    fs.make_dir(f"{root}/t/u")
    fs.open_write(f"{root}/t/u/a").pwrite(b"x", 0)
    fs.link(f"{root}/t/u/a", f"{root}/b")
    with pytest.raises(FileExistsError):
        fs.link(f"{root}/t/u/a", f"{root}/b")
    fs.remove_tree(f"{root}/t")
    assert fs.list_dir(root) == ["b"]
    assert fs.read_file(f"{root}/b") == b"x"
    with pytest.raises(FileNotFoundError):
        fs.remove_tree(f"{root}/t")


def test_atomic_write_replaces_and_leaves_no_temporary(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    fs.write_file_atomically(f"{root}/c", b"a longer one")
    fs.write_file_atomically(f"{root}/c", b"short")
    assert fs.read_file(f"{root}/c") == b"short"
    assert fs.list_dir(root) == ["c"]


def test_files_that_are_written_together(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    fs.write_files_atomically(root, {"b": b"a longer one", "a": b"1"})
    fs.write_files_atomically(root, {"b": b"short", "c": b"3"})
    assert [fs.read_file(f"{root}/{name}") for name in fs.list_dir(root)] == [b"1", b"short", b"3"]
    fs.make_dir(f"{root}/d/in the way")
    with pytest.raises(IsADirectoryError):
        fs.write_files_atomically(root, {"a": b"new", "d": b"data", "b": b"new"})
    assert fs.list_dir(root) == ["a", "b", "c", "d"]


def test_failed_atomic_write_leaves_no_temporary(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    fs.make_dir(f"{root}/c/in the way")
    with pytest.raises(IsADirectoryError):
        fs.write_file_atomically(f"{root}/c", b"data")
    assert fs.list_dir(root) == ["c"]


def test_an_open_file_is_where_its_name_is(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    fs.write_file_atomically(f"{root}/a", b"first")
    file = fs.open_read(f"{root}/a")
    assert fs.is_at(file, f"{root}/a")
    fs.rename(f"{root}/a", f"{root}/b")
    assert fs.is_at(file, f"{root}/b")
    assert not fs.is_at(file, f"{root}/a")
    fs.write_file_atomically(f"{root}/b", b"second")
    assert not fs.is_at(file, f"{root}/b"), "another file took its place"


def test_a_lock_is_seen_and_not_taken(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    assert not fs.is_locked(f"{root}/.lock")
    assert not fs.exists(f"{root}/.lock"), "looking makes no file"
    lock = fs.lock(f"{root}/.lock")
    assert fs.is_locked(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        fs.lock(f"{root}/.lock")  # looking did not drop it
    lock.release()
    assert not fs.is_locked(f"{root}/.lock")


def test_lock_excludes_until_released(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    lock = fs.lock(f"{root}/.lock")
    with pytest.raises(BlockingIOError):
        fs.lock(f"{root}/.lock")
    lock.release()
    lock.release()
    fs.lock(f"{root}/.lock").release()
    assert fs.exists(f"{root}/.lock")


def test_space_is_total_and_available(place: tuple[Filesystem, str]) -> None:
    fs, root = place
    space = fs.space(root)
    assert space.total_bytes >= space.used_bytes + space.usable_bytes >= space.usable_bytes > 0
    assert fs.real_path(f"{root}/") == root
    fs.sync_dir(root)
