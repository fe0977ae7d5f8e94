"""The partitions of a fleet: what lies in any number of log directories, without a daemon.

Reads names, sizes and checkpoints; opens no segment and writes nothing. A directory may be served
meanwhile: what vanishes between two looks was not there. A single partition directory counts as a
fleet of one. Which topic configs hold is told by whoever asks (``ConfigOf``: log directory, topic).

The rows of a job as values of JSON, and as a Parquet file.

A row is a NamedTuple; its fields are the columns: int, float, str and bool, or None as well. One
thread.
"""

from __future__ import annotations

import errno
import importlib
import types
import typing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import KafkalogError
from kafkalog.format.disk.checkpoints import salvage_offsets
from kafkalog.format.disk.file_names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCK,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
)
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import DirectoryState, TopicPartition, parse_directory_name
from kafkalog.log.log_config import LogConfig
from kafkalog.spark.logs.object_store import shown
from kafkalog.spark.logs.partition_files import is_a_link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkalog.env.filesystem import DirLock, Filesystem, ReadFilesystem

    ConfigOf = Callable[[str, str], LogConfig]


class UnusableDirectory(KafkalogError):
    """A directory that a job was given is missing, holds no partition, or is in use."""


def default_config(_log_dir: str, _topic: str) -> LogConfig:
    """Kafka's defaults for every topic."""
    return LogConfig()


@dataclass(frozen=True, slots=True)
class FleetPartition:
    """One partition directory; picklable.

    directory         absolute; ``log_dir`` is the directory around it, of which the whole was asked
                      for unless ``is_alone``
    size_bytes        of its ``.log`` files
    log_start_offset  as checkpointed, 0 without
    knows_log_start   the checkpoint was whole or names it: one without an entry begins with its
                      first segment
    high_watermark    as checkpointed, None without
    was_cleaned       the cleaner's checkpoint names it: offsets may be missing
    is_served         a daemon or a broker had the log directory open when this was asked
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
        """TOPIC-PARTITION, as its directory."""
        return f"{self.topic}-{self.partition}"

    @property
    def label(self) -> str:
        """For messages: where it is, too."""
        return shown(self.directory)

    @property
    def may_have_gaps(self) -> bool:
        """Whether missing offsets need no explanation."""
        return self.was_cleaned or self.config.is_compacted


def find_partitions(
    dirs: Sequence[str],
    filesystem: ReadFilesystem,
    *,
    config_of: ConfigOf = default_config,
    topics: frozenset[str] | None = None,
) -> list[FleetPartition]:
    """Every served partition of the directories, by topic, partition and directory.

    ``dirs`` are absolute; ``topics`` None: all, internal ones too. Raises UnusableDirectory for a
    directory that is missing or holds no partition, for a partition of them that is a link, and
    when no partition is left; OSError.
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
    directory: str,
    filesystem: ReadFilesystem,
    config_of: ConfigOf,
    topics: frozenset[str] | None,
) -> Iterator[FleetPartition]:
    """Of a log directory, or the one partition that it is; a link to one of ``topics`` is none."""
    try:
        entries = filesystem.list_dir_stats(directory)
    except FileNotFoundError as error:
        raise UnusableDirectory(f"{shown(directory)} does not exist") from error
    except NotADirectoryError as error:
        raise UnusableDirectory(f"{shown(directory)} is no directory") from error
    if any(each.is_file and each.name.endswith(LOG_SUFFIX) for each in entries):
        partition = _live_partition(directory.rpartition("/")[2])
        if partition is None:
            raise UnusableDirectory(
                f"{shown(directory)} holds segments but is not named TOPIC-PARTITION: rename it, "
                "or name the log directory around it"
            )
        log_dir = directory.rpartition("/")[0] or "/"
        checkpoints = _Checkpoints(log_dir, filesystem)
        alone = _partition(directory, log_dir, partition, filesystem, checkpoints, config_of)
        yield replace(alone, is_alone=True)
        return
    checkpoints, count = _Checkpoints(directory, filesystem), 0
    for entry in entries:
        partition = None if entry.is_file else _live_partition(entry.name)
        if partition is None:
            continue
        path = f"{directory.rstrip('/')}/{entry.name}"
        if not entry.is_dir:
            if topics is None or partition.topic in topics:
                raise UnusableDirectory(is_a_link(path))
            count += 1
            continue
        try:
            yield _partition(path, directory, partition, filesystem, checkpoints, config_of)
        except FileNotFoundError:
            continue  # deleted, or moved to another directory, since it was listed
        count += 1
    if not count:
        raise UnusableDirectory(
            f"{shown(directory)} is no log directory: no directory in it is named TOPIC-PARTITION"
        )


def _live_partition(name: str) -> TopicPartition | None:
    """What a directory of this name serves; None: nothing."""
    try:
        parsed = parse_directory_name(name)
    except FormatError:
        return None
    return parsed.topic_partition if parsed.state is DirectoryState.LIVE else None


class _Checkpoints:
    """What the files of a log directory say of it and its partitions."""

    def __init__(self, log_dir: str, filesystem: ReadFilesystem) -> None:
        starts = f"{log_dir}/{LOG_START_OFFSET_CHECKPOINT}"
        self.starts, self.has_all_starts = _read(starts, filesystem)
        self.high_watermarks, _ = _read(f"{log_dir}/{HIGH_WATERMARK_CHECKPOINT}", filesystem)
        self.cleaned, _ = _read(f"{log_dir}/{CLEANER_OFFSET_CHECKPOINT}", filesystem)
        self.is_served = filesystem.is_locked(f"{log_dir}/{LOCK}")


def _read(path: str, filesystem: ReadFilesystem) -> tuple[Mapping[TopicPartition, int], bool]:
    """The entries of a checkpoint that can be read, and whether these are all."""
    try:
        entries, damage = salvage_offsets(filesystem.read_file(path))
    except (FileNotFoundError, FormatError):
        return {}, False
    return entries, not damage


def _partition(
    path: str,
    log_dir: str,
    partition: TopicPartition,
    filesystem: ReadFilesystem,
    checkpoints: _Checkpoints,
    config_of: ConfigOf,
) -> FleetPartition:
    logs = (each for each in filesystem.list_dir_stats(path) if each.name.endswith(LOG_SUFFIX))
    return FleetPartition(
        topic=partition.topic,
        partition=partition.partition,
        directory=path,
        log_dir=log_dir,
        is_alone=False,
        size_bytes=sum(each.size for each in logs),
        log_start_offset=checkpoints.starts.get(partition, 0),
        knows_log_start=checkpoints.has_all_starts or partition in checkpoints.starts,
        high_watermark=checkpoints.high_watermarks.get(partition),
        was_cleaned=partition in checkpoints.cleaned,
        is_served=checkpoints.is_served,
        config=config_of(log_dir, partition.topic),
    )


class HeldDirectories:
    """The locks of log directories, so that no daemon serves them meanwhile; a context manager.

    A directory without a lock file was never served, or is a copy: nothing is held of it, and
    nothing is written to it.
    """

    def __init__(self, log_dirs: Sequence[str], filesystem: Filesystem) -> None:
        self._log_dirs = log_dirs
        self._filesystem = filesystem
        self._locks: list[DirLock] = []

    def __enter__(self) -> HeldDirectories:
        try:
            for log_dir in self._log_dirs:
                self._hold(log_dir)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        while self._locks:
            self._locks.pop().release()

    def _hold(self, log_dir: str) -> None:
        path = f"{log_dir}/{LOCK}"
        if not self._filesystem.exists(path):
            return
        try:
            self._locks.append(self._filesystem.lock(path))
        except BlockingIOError as error:
            raise _served(log_dir, path) from error
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            if self._filesystem.is_locked(path):  # by who has the same disk mounted for writing
                raise _served(log_dir, path) from error


def _served(log_dir: str, path: str) -> UnusableDirectory:
    return UnusableDirectory(
        f"{log_dir} is served by a daemon or a broker, or another job works on it: {path} is "
        "locked. Stop the daemon, or work on a copy (kafkalog backup)"
    )


_ARROW_NAMES = {int: "int64", float: "float64", str: "string", bool: "bool_"}


class ArrowMissing(KafkalogError):
    """pyarrow is not there; the message says what to install."""


def columns_of(kind: type[tuple[Any, ...]]) -> dict[str, type]:
    """Names and types of the fields of a NamedTuple, without the None that a field may be."""
    columns: dict[str, type] = {}
    for name, hint in typing.get_type_hints(kind).items():
        choices = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        (columns[name],) = (each for each in choices if each is not type(None))
    return columns


def json_rows(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Each row as an object."""
    return [row._asdict() for row in rows]


def write_parquet(path: str, kind: type[tuple[Any, ...]], rows: Sequence[tuple[Any, ...]]) -> None:
    """All rows into a new file, under another name until it is whole and synced.

    Replaces what was there. Raises ArrowMissing and OSError; the old file is still there then.
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
    partial = f"{path}.{SystemRandom().uuid_bytes().hex()}.tmp"
    try:
        parquet.write_table(pyarrow.table(values, schema=schema), partial)
        file = filesystem.open_write(partial, create=False)
        file.sync()
        file.close()
        filesystem.rename(partial, path)
    except BaseException:
        if filesystem.exists(partial):
            filesystem.unlink(partial)
        raise
    filesystem.sync_dir(path.rpartition("/")[0] or "/")
