"""A copy of a directory's files, times and modes with them: for tools that work on a copy."""

from __future__ import annotations

import os
import shutil


def copy_files(source: str, target: str) -> None:
    """Copy the regular files of source into the new directory target, with their mtimes.

    Nothing is synced. OSError; target then holds a part.
    """
    os.makedirs(target)
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.is_file():
                shutil.copy2(entry.path, f"{target}/{entry.name}")
