"""The argument that names a partition directory: anything else must not pass for a sound one."""

from __future__ import annotations

import os

import click

from kafkalog.format.disk.file_names import LOG_SUFFIX


def require_partition_directory(directory: str) -> None:
    """Usage error when nothing in the directory is a segment; says where segments are, if below."""
    names = os.listdir(directory)
    if any(name.endswith(LOG_SUFFIX) for name in names):
        return
    inside = sorted(
        name
        for name in names
        if os.path.isdir(os.path.join(directory, name))
        and any(entry.endswith(LOG_SUFFIX) for entry in os.listdir(os.path.join(directory, name)))
    )
    hint = f"; it holds partitions, for example {inside[0]}" if inside else ""
    raise click.UsageError(f"{directory} is no partition directory: no {LOG_SUFFIX} file{hint}")
