"""Goal: open files and cached indexes stay within their bounds, renames never mislead a reader.
Method: the caches and segment files alone, with a disk that counts its opens.
"""

from __future__ import annotations

import threading

import pytest

from kafkalog.log.environment import ENTRY_OVERHEAD_BYTES, IndexCache
from kafkalog.log.segment.segment_file import MovableDirectory, SegmentFile
from kafkalog.log.values import WouldBlock
from tests.log_world import DIRECTORY, LogWorld
from tests.sim.sim_filesystem import SimFilesystem


def made_file(world: LogWorld, name: str, content: bytes) -> SegmentFile:
    world.filesystem.open_write(f"{DIRECTORY}/{name}").pwrite(content, 0)
    return SegmentFile(world.environment, world.directory, name)


def test_least_recently_used_index_goes_first() -> None:
    cache = IndexCache(threading.Lock(), 3 * (ENTRY_OVERHEAD_BYTES + 100))
    for owner in "abc":
        cache.put(owner, owner.upper(), 100)
    assert cache.get("a") == "A"
    cache.put("d", "D", 100)
    assert [cache.get(owner) for owner in "abcd"] == ["A", None, "C", "D"]
    cache.put("e", "E", 10_000)
    assert cache.get("e") is None
    assert len(cache) == 3
    for owner in "acd":
        cache.forget(owner)
    assert cache.size_bytes == 0


def test_reader_never_replaces_what_is_cached() -> None:
    cache = IndexCache(threading.Lock(), 10_000)
    cache.put("a", "new", 10)
    assert cache.put_if_absent("a", "stale", 10) == "new"
    assert cache.put_if_absent("b", "first", 10) == "first"
    assert cache.get("a") == "new"


def test_files_open_lazily_and_evicted_ones_live_on_in_their_reader() -> None:
    """The world keeps two descriptors."""
    world = LogWorld()
    files = [made_file(world, f"{number}.log", b"%d" % number) for number in range(3)]
    with pytest.raises(WouldBlock):
        files[0].acquire(may_block=False)
    reader = files[0].acquire()
    assert files[0].acquire(may_block=False) is reader
    for file in files[1:]:
        file.acquire()
    assert len(world.environment.open_files) == 2
    with pytest.raises(WouldBlock):
        files[0].acquire(may_block=False)
    assert reader.pread(1, 0) == b"0"


def test_renamed_and_moved_files_are_found() -> None:
    """M12: a segment found before its renaming is still readable after it."""
    world = LogWorld()
    file = made_file(world, "1.log", b"data")
    assert file.rename("1.log.deleted")
    assert file.acquire().pread(4, 0) == b"data"
    file.release()
    world.directory.rename(world.filesystem, f"{DIRECTORY}.x-delete")
    assert file.acquire().pread(4, 0) == b"data"
    assert file.path == f"{DIRECTORY}.x-delete/1.log.deleted"
    assert file.unlink()
    assert not file.unlink()
    assert not file.datasync()
    with pytest.raises(FileNotFoundError):
        file.acquire()


@pytest.mark.parametrize("is_directory", [False, True])
def test_a_walk_begins_in_the_middle_of_a_rename(*, is_directory: bool) -> None:
    """M26: a segment that changes its name at this moment is no missing file. No warning about a
    sound log, whose number would be gone until the next survey.
    """
    read: list[bytes] = []

    def walk() -> None:
        if is_renaming and not read:
            read.append(b"")  # asks the disk, too
            read[0] = file.open_scan().pread(4, 0)

    is_renaming = False
    world = LogWorld(disk=SimFilesystem(on_call=walk))
    file = made_file(world, "1.log.swap", b"data")
    is_renaming = True
    if is_directory:
        world.directory.rename(world.filesystem, f"{DIRECTORY}.x-delete")
    else:
        file.rename("1.log")
    assert read == [b"data"]


def test_missing_file_keeps_the_new_name() -> None:
    world = LogWorld()
    file = SegmentFile(world.environment, world.directory, "9.log")
    assert not file.rename("9.log.deleted")
    assert file.name == "9.log.deleted"


def test_failed_directory_rename_keeps_the_old_path() -> None:
    world = LogWorld()
    directory = MovableDirectory("/nowhere")
    with pytest.raises(FileNotFoundError):
        directory.rename(world.filesystem, "/elsewhere")
    assert directory.path == "/nowhere"
