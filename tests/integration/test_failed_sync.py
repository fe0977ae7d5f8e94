"""Goal: what the kernel failed to write is not shown to anybody who reads later.
Method: ext4 in a file on a tmpfs that is smaller than it claims to be: writing back fails.
"""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from kafkalog.env.system_filesystem import SystemFilesystem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 12 << 20


def run(*command: object) -> bool:
    """Whether the command succeeded."""
    return not subprocess.run([str(part) for part in command], capture_output=True).returncode


@contextmanager
def thin_disk(root: Path) -> Iterator[Path]:
    """A directory on a file system of 40 MiB that has 6 MiB behind it."""
    small, mounted = root / "small", root / "mounted"
    small.mkdir()
    mounted.mkdir()
    if not run("mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", small):
        pytest.skip("this user cannot mount a tmpfs")
    try:
        image = small / "image"
        with image.open("wb") as file:
            file.truncate(40 << 20)
        is_made = run("mkfs.ext4", "-q", "-O", "^has_journal", image)
        if not is_made or not run("mount", "-o", "loop", image, mounted):
            pytest.skip("this user cannot mount a loop device")
        try:
            yield mounted
        finally:
            run("umount", "-l", mounted)
    finally:
        run("umount", "-l", small)


def test_pages_that_were_not_written_are_not_read(tmp_path: Path) -> None:
    """M15: syncs fail, then one "succeeds" without the pages: reads show what the disk holds."""
    with thin_disk(tmp_path) as directory:
        filesystem = SystemFilesystem()
        path = f"{directory}/file"
        file = filesystem.open_write(path)
        file.pwrite(b"x" * SIZE, 0)
        failures = 0
        for _ in range(10):
            try:
                file.datasync()
                break
            except OSError:
                failures += 1
        assert failures, "the disk took more than it has"
        data = filesystem.read_file(path)
        written = sum(data[position] == ord("x") for position in range(0, SIZE, 4096))
        assert 0 < written < SIZE // 4096
        file.close()
