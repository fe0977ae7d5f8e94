"""Goal: the machine's files keep their promises, a loop leaves time to others, and one failure
holds up no other thing.
Method: real directories and locks between processes, a simulated clock.
"""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from kafkalog.env.clock import SystemClock, TimeSlice
from kafkalog.env.daemon_processes import starting_daemons
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import DiskFull, KafkalogError, UnknownTopic, first_fault, work_on_each
from tests.sim.sim_clock import SimClock

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


_TRY_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit(7)
"""
_IS_LOCKED = """
import sys
from kafkalog.env.system_filesystem import SystemFilesystem
sys.exit(7 if SystemFilesystem().is_locked(sys.argv[1]) else 0)
"""
_SHORT_WRITE = """
import errno, os, resource, signal, sys
from kafkalog.env.system_filesystem import SystemFilesystem
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
file = SystemFilesystem().open_write(sys.argv[1])
try:
    file.pwritev([b"a" * 600, b"b" * 600], 0)
except OSError as error:
    sys.exit(0 if error.errno == errno.EFBIG and file.size() == 1000 else 1)
sys.exit(2)
"""


def _run(program: str, argument: str) -> int:
    command = [sys.executable, "-c", program, argument]
    return subprocess.run(command, check=False, timeout=60).returncode


def test_files_and_directories_are_closed_to_others(tmp_path: Path) -> None:
    fs = SystemFilesystem()
    fs.make_dir(f"{tmp_path}/a/b")
    fs.open_write(f"{tmp_path}/a/b/c")
    for name, mode in (("a", 0o750), ("a/b", 0o750), ("a/b/c", 0o640)):
        assert (tmp_path / name).stat().st_mode & 0o777 & ~mode == 0


def test_planted_links_are_never_followed(tmp_path: Path) -> None:
    fs = SystemFilesystem()
    (tmp_path / "victim").write_bytes(b"untouched")
    (tmp_path / "tree").mkdir()
    for link in ("log", ".lock", "tree/inner"):
        (tmp_path / link).symlink_to(tmp_path / "victim")
    for call in (fs.open_read, fs.open_write, fs.lock):
        for link in ("log", ".lock"):
            with pytest.raises(OSError, match="symbolic") as refused:
                call(f"{tmp_path}/{link}")
            assert refused.value.errno == errno.ELOOP
    stat = fs.stat(f"{tmp_path}/log")
    assert not stat.is_file
    assert not stat.is_dir
    fs.remove_tree(f"{tmp_path}/tree")
    assert (tmp_path / "victim").read_bytes() == b"untouched"


def test_a_lock_of_another_process_is_seen_and_not_taken(tmp_path: Path) -> None:
    """M01: Java's FileChannel.lock is this POSIX lock, so Kafka and kafkalog exclude each other."""
    path = f"{tmp_path}/.lock"
    assert _run(_IS_LOCKED, path) == 0
    lock = SystemFilesystem().lock(path)
    assert _run(_IS_LOCKED, path) == 7
    assert SystemFilesystem().is_locked(path)
    assert _run(_TRY_LOCK, path) == 7, "our own look must not have dropped it"
    lock.release()
    assert _run(_IS_LOCKED, path) == 0
    assert _run(_TRY_LOCK, path) == 0


def test_a_short_gather_write_is_continued_until_the_error(tmp_path: Path) -> None:
    assert _run(_SHORT_WRITE, f"{tmp_path}/a") == 0


def test_descriptors_close_with_the_last_reference(tmp_path: Path) -> None:
    fs = SystemFilesystem()
    fs.open_write(f"{tmp_path}/a").pwrite(b"x", 0)
    gc.collect()  # what earlier tests left in cycles may hold descriptors
    before = len(os.listdir("/proc/self/fd"))
    held = [fs.open_read(f"{tmp_path}/a") for _ in range(10)]
    assert len(os.listdir("/proc/self/fd")) == before + 10
    held.clear()
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_entry_that_is_no_file_is_listed_as_neither(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (entry,) = SystemFilesystem().list_dir_stats(str(tmp_path))
    assert (entry.name, entry.is_dir, entry.is_file) == ("pipe", False, False)


def test_a_scan_leaves_what_a_reader_has_read_of_the_same_piece(tmp_path: Path) -> None:
    path = f"{tmp_path}/a"
    fs = SystemFilesystem()
    file = fs.open_write(path)
    file.pwrite(os.urandom(4 << 20), 0)
    file.sync()
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(fd, 512 << 10, 0)
    os.close(fd)
    places = range(0, 512 << 10, 4096)
    before = [file.try_pread_into(bytearray(4096), each) for each in places]
    whole = bytearray(1 << 20)
    assert fs.open_scan(path).pread_into(whole, 0) == len(whole)
    assert before == [file.try_pread_into(bytearray(4096), each) for each in places]
    assert whole == file.pread(1 << 20, 0)


_US = 1000


@pytest.mark.parametrize(
    ("items", "item_us", "took_us"),
    [
        (99, 10, 990),  # less than a slice of a millisecond
        (1000, 10, 30_000),  # 1 ms of work, then 2 ms of sleep, where the next slice begins
        (1, 50_000, 52_000),  # time that was spent waiting is not paid back
    ],
)
def test_a_long_loop_works_a_third_of_the_time(items: int, item_us: int, took_us: int) -> None:
    clock = SimClock()
    time_slice, begun = TimeSlice(clock), clock.monotonic_ns()
    for _ in range(items):
        clock.advance_ns(item_us * _US)
        time_slice.maybe_yield()
    time_slice.maybe_yield()
    assert clock.monotonic_ns() - begun == took_us * _US


FAULTS: dict[str, Exception] = {"b": DiskFull("b"), "c": UnknownTopic("c")}


class Work:
    """Notes what it was asked for, and raises where it is told to."""

    def __init__(self, faults: dict[str, Exception]) -> None:
        self.done: list[str] = []
        self._faults = faults

    def __call__(self, item: str) -> None:
        self.done.append(item)
        if item in self._faults:
            raise self._faults[item]


def test_all_are_tried_and_the_first_fault_is_kept() -> None:
    work = Work(FAULTS)
    assert first_fault("abcd", work) is FAULTS["b"]
    assert work.done == list("abcd")
    with pytest.raises(DiskFull):
        work_on_each("abcd", work)
    assert work.done == list("abcdabcd")
    assert first_fault("ad", work) is None
    work_on_each("ad", work)


def test_each_fault_is_told_with_its_item() -> None:
    told: list[tuple[str, KafkalogError]] = []
    faults = {name: DiskFull(name) for name in "bc"}
    assert not faults["b"].already_logged
    first_fault("abcd", Work(dict(faults)), lambda item, fault: told.append((item, fault)))
    assert told == list(faults.items())
    assert all(fault.already_logged for fault in faults.values())


def test_a_defect_ends_it() -> None:
    work = Work({"b": AssertionError("defect")})
    with pytest.raises(AssertionError):
        work_on_each("abc", work)
    assert work.done == ["a", "b"]


def test_a_pause_between_two_clocks_is_no_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread holds the processor for two seconds after the boot clock was read."""
    boot_ns = iter([10**9, 3 * 10**9, 4 * 10**9, 4 * 10**9 + 1])
    wall_ns = iter([(1_000 + 3) * 10**9, (1_000 + 4) * 10**9])
    monkeypatch.setattr(time, "clock_gettime_ns", lambda _clock: next(boot_ns))
    monkeypatch.setattr(time, "time_ns", lambda: next(wall_ns))
    reading = SystemClock().reading()
    assert reading.wall_ms - reading.since_boot_ms == 1_000_000


DAEMON = """
import socket, sys
with socket.socket() as port:
    port.bind(("127.0.0.1", 0))
    print("started", flush=True)
    sys.stdin.readline()
    port.listen()
    print(port.getsockname()[1], flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("words", "is_seen"),
    [
        (("/opt/bin/kafkalog", "server"), True),
        (("kafkalog", "server", "file", "--override", "http.port=8082"), True),
        (("kafkalog", "server", "--override=http.port=8083"), False),
        (("kafkalog", "consume"), False),
    ],
)
def test_a_daemon_without_a_port_is_seen_until_it_listens(
    words: Sequence[str], is_seen: bool
) -> None:
    """What a command waits for that follows ``kafkalog server &``."""
    process = subprocess.Popen(
        [sys.executable, "-c", DAEMON, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        assert (process.pid in starting_daemons(8082)) is is_seen
        process.stdin.write("\n")
        process.stdin.flush()
        port = int(process.stdout.readline())
        assert process.pid not in starting_daemons(8082)
        if words[2:] == () and is_seen:  # it opened the port after the caller was refused
            assert process.pid in starting_daemons(port)
        process.kill()
        process.wait()
        assert process.pid not in starting_daemons(8082)


def test_an_old_process_without_a_port_is_not_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon that stops, or hangs, has closed its port: nobody waits for it."""
    command = [sys.executable, "-c", DAEMON, "kafkalog", "server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        assert process.pid in starting_daemons(8082)
        later = time.clock_gettime(time.CLOCK_BOOTTIME) + 181
        monkeypatch.setattr(time, "clock_gettime", lambda _: later)
        assert process.pid not in starting_daemons(8082)
        process.kill()
