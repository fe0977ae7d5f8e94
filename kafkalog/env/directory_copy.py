"""A copy of a directory's files, times and modes with them: for tools that work on a copy."""

from __future__ import annotations

import os
import shutil


def copy_files(source: str, target: str) -> None:
    """Copy the regular files of source into the new directory target, with their mtimes.

    Nothing is synced. OSError; target then holds a part.
    """
    os.makedirs(os.path.dirname(os.path.abspath(target)), exist_ok=True)
    os.mkdir(target)
    for name, _ in files_to_copy(source):
        copy_file(f"{source}/{name}", f"{target}/{name}")


def files_to_copy(source: str) -> list[tuple[str, int]]:
    """Names and bytes of a directory's regular files, and of those that links lead to. OSError."""
    with os.scandir(source) as entries:
        return [(each.name, each.stat().st_size) for each in entries if each.is_file()]


def copy_file(source: str, target: str) -> None:
    """Copy one regular file with its mtime. Not synced; OSError, target may then hold a part."""
    shutil.copy2(source, target)
