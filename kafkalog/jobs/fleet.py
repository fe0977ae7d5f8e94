"""The partitions in any number of log directories, without a daemon; the rows of jobs.

`find_partitions` reads names, sizes and checkpoints. It opens no segment and writes nothing. A
directory may be served meanwhile: a partition that disappears during the search is not found. A
single partition directory may be given instead of a log directory. The caller knows the topic
configs (``ConfigOf``: log directory, topic).

A row of a job is a NamedTuple. Its fields are the columns: int, float, str or bool, or None. Rows
are written as JSON values or as a Parquet file. One thread.
"""

from __future__ import annotations

import errno
import importlib
import types
import typing
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError
from kafkalog.format.disk.backup_manifest import MANIFEST_FILE
from kafkalog.format.disk.file_names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
)
from kafkalog.format.topic_names import live_partition
from kafkalog.log.log_config import LogConfig
from kafkalog.spark.logs.object_store import shown
from kafkalog.spark.logs.partition_files import is_a_backup, is_a_link, readable_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kafkalog.env.filesystem import Filesystem, ReadFilesystem
    from kafkalog.format.topic_names import TopicPartition

    ConfigOf = Callable[[str, str], LogConfig]


class UnusableDirectory(KafkalogError):
    """A directory of a job is missing, holds no partition, or is in use."""


@dataclass(frozen=True, slots=True)
class FleetPartition:
    """One partition directory; picklable.

    directory         absolute; ``log_dir`` is its parent
    is_alone          only this partition of the log directory was given
    size_bytes        size of the ``.log`` files
    log_start_offset  from the checkpoint; 0: no entry
    knows_log_start   the checkpoint is undamaged or has an entry; an undamaged one without an
                      entry means that the log begins with its first segment
    high_watermark    from the checkpoint; None: no entry
    was_cleaned       the cleaner's checkpoint has an entry: offsets may be missing
    is_served         a daemon or broker had the log directory open
    """

    topic: str
    partition: int
    directory: str
    log_dir: str
    is_alone: bool
    size_bytes: int
    log_start_offset: int
    knows_log_start: bool
    high_watermark: int | None
    was_cleaned: bool
    is_served: bool
    config: LogConfig

    @property
    def name(self) -> str:
        """TOPIC-PARTITION, the name of its directory."""
        return f"{self.topic}-{self.partition}"

    @property
    def label(self) -> str:
        """The directory, for messages."""
        return shown(self.directory)

    @property
    def may_have_gaps(self) -> bool:
        """Whether compaction explains missing offsets."""
        return self.was_cleaned or self.config.is_compacted


def find_partitions(
    dirs: Sequence[str],
    filesystem: ReadFilesystem,
    *,
    config_of: ConfigOf = lambda _log_dir, _topic: LogConfig(),
    topics: frozenset[str] | None = None,
) -> list[FleetPartition]:
    """The partitions of the directories, sorted by topic, partition and directory.

    ``dirs`` are absolute; ``topics`` None: all, with internal ones. Raises UnusableDirectory for a
    directory that is missing, is a backup or holds no partition, for a partition that is a link,
    and if no partition is found; OSError.
    """
    found: dict[str, FleetPartition] = {}
    for directory in dirs:
        some = list(_partitions_in(directory.rstrip("/") or "/", filesystem, config_of, topics))
        found |= {filesystem.real_path(each.directory): each for each in some}
    wanted = [each for each in found.values() if topics is None or each.topic in topics]
    if not wanted:
        names = ", ".join(sorted(topics or ()))
        raise UnusableDirectory(
            f"None of {', '.join(map(shown, dirs))} holds a partition of {names}"
        )
    return sorted(wanted, key=lambda each: (each.topic, each.partition, each.directory))


def _partitions_in(
    directory: str, filesystem: ReadFilesystem, config_of: ConfigOf, topics: frozenset[str] | None
) -> Iterator[FleetPartition]:
    """The partitions in a log directory, or the partition that the directory itself is."""
    try:
        entries = filesystem.list_dir_stats(directory)
    except FileNotFoundError as error:
        raise UnusableDirectory(f"{shown(directory)} does not exist") from error
    except NotADirectoryError as error:
        raise UnusableDirectory(f"{shown(directory)} is not a directory") from error
    if any(each.name == MANIFEST_FILE for each in entries):
        raise UnusableDirectory(is_a_backup(directory))
    if any(each.is_file and each.name.endswith(LOG_SUFFIX) for each in entries):
        partition = live_partition(directory.rpartition("/")[2])
        if partition is None:
            raise UnusableDirectory(
                f"{shown(directory)} holds segments but is not named TOPIC-PARTITION: rename it, "
                "or give the log directory that contains it"
            )
        log_dir = _LogDir(directory.rpartition("/")[0] or "/", filesystem, config_of)
        yield log_dir.partition(partition, directory, is_alone=True)
        return
    log_dir, count = _LogDir(directory, filesystem, config_of), 0
    for entry in entries:
        partition = None if entry.is_file else live_partition(entry.name)
        if partition is None:
            continue
        path = f"{directory.rstrip('/')}/{entry.name}"
        if not entry.is_dir:
            if topics is None or partition.topic in topics:
                raise UnusableDirectory(is_a_link(path))
            count += 1
            continue
        try:
            yield log_dir.partition(partition, path, is_alone=False)
        except FileNotFoundError:
            continue  # deleted, or moved to another directory, since it was listed
        count += 1
    if not count:
        raise UnusableDirectory(
            f"{shown(directory)} is not a log directory: no directory in it is named "
            "TOPIC-PARTITION"
        )


class _LogDir:
    """A log directory with its checkpoints, as far as they can be read."""

    def __init__(self, path: str, filesystem: ReadFilesystem, config_of: ConfigOf) -> None:
        read = partial(readable_offsets, filesystem, path)
        self._path, self._filesystem, self._config_of = path, filesystem, config_of
        self._starts, self._has_all_starts = read(LOG_START_OFFSET_CHECKPOINT)
        self._high_watermarks, _ = read(HIGH_WATERMARK_CHECKPOINT)
        self._cleaned, _ = read(CLEANER_OFFSET_CHECKPOINT)
        self._is_served = filesystem.is_locked(f"{path}/{LOCK}")

    def partition(self, at: TopicPartition, path: str, *, is_alone: bool) -> FleetPartition:
        """One partition. Raises FileNotFoundError if its directory is missing, OSError."""
        stats = self._filesystem.list_dir_stats(path)
        return FleetPartition(
            topic=at.topic,
            partition=at.partition,
            directory=path,
            log_dir=self._path,
            is_alone=is_alone,
            size_bytes=sum(each.size for each in stats if each.name.endswith(LOG_SUFFIX)),
            log_start_offset=self._starts.get(at, 0),
            knows_log_start=self._has_all_starts or at in self._starts,
            high_watermark=self._high_watermarks.get(at),
            was_cleaned=at in self._cleaned,
            is_served=self._is_served,
            config=self._config_of(self._path, at.topic),
        )


@contextmanager
def locked_directories(log_dirs: Sequence[str], filesystem: Filesystem) -> Iterator[None]:
    """Hold the locks of log directories, so that no daemon serves them meanwhile.

    A directory without a lock file was never served, or is a copy: it is not locked, and nothing is
    written to it. Raises UnusableDirectory, OSError.
    """
    with ExitStack() as locks:
        for log_dir in log_dirs:
            path = f"{log_dir}/{LOCK}"
            if not filesystem.exists(path):
                continue
            try:
                locks.callback(filesystem.lock(path).release)
            except BlockingIOError as error:
                raise _served(log_dir, path) from error
            except OSError as error:
                if error.errno != errno.EROFS:
                    raise
                if filesystem.is_locked(path):  # by a machine that can write to the same disk
                    raise _served(log_dir, path) from error
        yield


def _served(log_dir: str, path: str) -> UnusableDirectory:
    return UnusableDirectory(
        f"{log_dir} is served by a daemon or a broker, or used by another job: {path} is "
        "locked. Stop the daemon, or use a copy (kafkalog backup)"
    )


_ARROW_NAMES = {int: "int64", float: "float64", str: "string", bool: "bool_"}


class ArrowMissing(KafkalogError):
    """pyarrow is missing; the message says what to install."""


def columns_of(kind: type[tuple[Any, ...]]) -> dict[str, type]:
    """The names and types of the fields of a NamedTuple, without None."""
    columns: dict[str, type] = {}
    for name, hint in typing.get_type_hints(kind).items():
        choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        (columns[name],) = (each for each in choices if each is not type(None))
    return columns


def sums(rows: Sequence[Any], *names: str) -> dict[str, int]:
    """The number of rows as ``partitions``, and the sums of these columns; None counts as 0."""
    columns = {name: sum(getattr(row, name) or 0 for row in rows) for name in names}
    return {"partitions": len(rows), **columns}


def write_parquet(path: str, kind: type[tuple[Any, ...]], rows: Sequence[tuple[Any, ...]]) -> None:
    """Write all rows to a file, which replaces an old one when it is complete and synced.

    Raises ArrowMissing and OSError; the old file is kept then.
    """
    try:
        pyarrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ArrowMissing(
            "Parquet needs pyarrow: pip install 'kafkalog[spark]', or use --output json"
        ) from error
    columns = columns_of(kind)
    schema = pyarrow.schema(
        [(name, getattr(pyarrow, _ARROW_NAMES[each])()) for name, each in columns.items()]
    )
    values = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
    filesystem = SystemFilesystem()
    temporary = f"{path}.{SystemRandom().uuid_bytes().hex()}.tmp"
    try:
        parquet.write_table(pyarrow.table(values, schema=schema), temporary)
        file = filesystem.open_write(temporary, create=False)
        file.sync()
        file.close()
        filesystem.rename(temporary, path)
    except BaseException:
        if filesystem.exists(temporary):
            filesystem.unlink(temporary)
        raise
    filesystem.sync_dir(path.rpartition("/")[0] or "/")
