"""An archive as a directory of Parquet files, with files for its commits.

    ROOT/topic-NAME/PARTITION-FROM-TO-ID.parquet    committed files
    ROOT/topic-NAME/.….parquet.pending              files without a commit, or of the last one
    ROOT/_kafkalog/COMMIT.json                      commits from 1 on, 20 digits: files and position
    ROOT/_kafkalog/lock                             locked while a job writes

A commit is one file that is written under a temporary name and renamed. Then its data files are
renamed to names without the dot and the suffix. Readers that list directories (Spark, pyarrow) skip
names with a leading dot, so that they never see a file without a commit. After a crash between the
two, the next opening completes the renames of the last commit and removes the other hidden files.

For file systems with atomic renames, and one machine at a time. On an object store use an Iceberg
table.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.jobs.archive.archive_table import (
    ArchivedFile,
    Position,
    UnusableTable,
    offsets_text,
    position_of,
    sync_local,
    topics_text,
)
from kafkalog.jobs.archive.file_layout import FileLayout
from kafkalog.log.inspect.directory_facts import enclosing_log_dir

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from kafkalog.env.filesystem import DirLock, Filesystem
    from kafkalog.jobs.archive.archive_table import FileStore

FORMAT = 1
COMMITS_DIR = "_kafkalog"
_PENDING = ".pending"
_TOPIC_PREFIX = "topic-"  # a topic's name may begin with a dot or underscore, which hides it
_DIGITS = 20


@dataclass(frozen=True, slots=True)
class LocalStore:
    """The files below a directory, which has the same path on all machines of a job."""

    root: str

    def path_of(self, topic: str, name: str) -> str:
        """See FileStore: a hidden name."""
        return f"{self.root}/{_TOPIC_PREFIX}{topic}/.{name}{_PENDING}"

    def create(self, path: str) -> AbstractContextManager[Any]:
        """See FileStore."""
        import pyarrow

        SystemFilesystem().make_dir(path.rpartition("/")[0])
        stream: AbstractContextManager[Any] = pyarrow.OSFile(path, "wb")
        return stream

    def open(self, path: str) -> AbstractContextManager[Any]:
        """See FileStore."""
        import pyarrow

        stream: AbstractContextManager[Any] = pyarrow.OSFile(path, "rb")
        return stream

    def sync(self, path: str) -> None:
        """See FileStore."""
        sync_local(path)

    def remove(self, path: str) -> None:
        """See FileStore."""
        filesystem = SystemFilesystem()
        if filesystem.exists(path):
            filesystem.unlink(path)


class ParquetTable:
    """``ArchiveTable`` for a directory; see the module. Opening creates and locks it."""

    def __init__(self, root: str, filesystem: Filesystem) -> None:
        """``root``: an absolute path. Raises UnusableTable if it is in use or damaged."""
        # constant after construction
        self._root = root.rstrip("/")
        self.store = LocalStore(self._root)
        self.dead_store: FileStore | None = None
        self.layout = FileLayout()
        self._filesystem = filesystem
        self._commits = f"{self._root}/{COMMITS_DIR}"
        self._lock = self._open()
        # of the last commit
        self._generation, self.position = 0, Position()
        try:
            self.abandon()
        except BaseException:
            self.close()
            raise

    def commit(
        self, files: Sequence[ArchivedFile], position: Position, dead: Sequence[ArchivedFile] = ()
    ) -> None:
        """See ArchiveTable; the lock excludes other jobs."""
        assert not dead
        generation = self._generation + 1
        document = {
            "format": FORMAT,
            "offsets": offsets_text(position),
            "topics": topics_text(position),
            "files": [_entry_of(each._replace(path=self._final_name(each.path))) for each in files],
        }
        data = json.dumps(document, indent=1).encode() + b"\n"
        self._filesystem.write_file_atomically(_commit_path(self._root, generation), data)
        self._generation, self.position = generation, position
        self._publish(files_of(document))

    def abandon(self) -> None:
        """See ArchiveTable: remove hidden files, after the renames of the last commit.

        That may be a commit that was made although it raised an error.
        """
        self._generation, self.position = self._finish_last()
        for directory in self._topic_dirs():
            for name in self._filesystem.list_dir(directory):
                if name.startswith(".") and name.endswith(_PENDING):
                    self._filesystem.unlink(f"{directory}/{name}")

    def close(self) -> None:
        """See ArchiveTable."""
        self._lock.release()

    # ---- parts

    def _open(self) -> DirLock:
        filesystem = self._filesystem
        if not filesystem.exists(self._commits):
            self._check_place()
            filesystem.make_dir(self._commits)
            filesystem.sync_dir(self._root)
            filesystem.sync_dir(self._root.rpartition("/")[0] or "/")
        try:
            return filesystem.lock(f"{self._commits}/lock")
        except BlockingIOError as error:
            raise UnusableTable(f"Another job writes to {self._root}: wait for it") from error

    def _check_place(self) -> None:
        """A new archive needs an empty or missing directory outside of log directories."""
        try:
            if self._filesystem.exists(self._root) and self._filesystem.list_dir(self._root):
                raise UnusableTable(
                    f"{self._root} is not an archive and not empty: give another directory"
                )
        except (NotADirectoryError, FileNotFoundError) as error:  # a file, a dangling link
            raise UnusableTable(f"{self._root} is not a directory: give another one") from error
        real_path = self._filesystem.real_path(self._root)
        around = enclosing_log_dir(self._filesystem, real_path)
        if around is not None:
            raise UnusableTable(
                f"{self._root} would be in the log directory {around}: give another path"
            )

    def _finish_last(self) -> tuple[int, Position]:
        """Number and position of the last commit, after the renames of its files."""
        generations = committed_generations(self._root, self._filesystem)
        if not generations:
            for directory in self._topic_dirs():  # its files would be archived again
                if any(not name.startswith(".") for name in self._filesystem.list_dir(directory)):
                    raise UnusableTable(
                        f"{self._commits} has no commit, but {directory} has files: the archive is "
                        "damaged, restore the commits"
                    )
            return 0, Position()
        document = read_commit(self._root, generations[-1], self._filesystem)
        self._publish(files_of(document))
        topics = document.get("topics", {})
        return generations[-1], position_of(document["offsets"], topics, self._commits)

    def _publish(self, files: Sequence[ArchivedFile]) -> None:
        """Give the files of a commit their final names, durably."""
        filesystem, directories = self._filesystem, set[str]()
        for each in files:
            final = f"{self._root}/{each.path}"
            directory, _, name = final.rpartition("/")
            pending = f"{directory}/.{name}{_PENDING}"
            if filesystem.exists(pending):
                filesystem.rename(pending, final)
                directories.add(directory)
            elif not filesystem.exists(final):
                raise UnusableTable(f"{final} is missing: the archive is damaged, restore the file")
        for directory in sorted(directories):
            filesystem.sync_dir(directory)

    def _final_name(self, pending: str) -> str:
        """The final name of a file, relative to the root."""
        directory, _, name = pending.removeprefix(f"{self._root}/").rpartition("/")
        return f"{directory}/{name.removeprefix('.').removesuffix(_PENDING)}"

    def _topic_dirs(self) -> Iterator[str]:
        for stat in self._filesystem.list_dir_stats(self._root):
            if stat.is_dir and stat.name.startswith(_TOPIC_PREFIX):
                yield f"{self._root}/{stat.name}"


def _commit_path(root: str, generation: int) -> str:
    return f"{root}/{COMMITS_DIR}/{generation:0{_DIGITS}}.json"


def committed_generations(root: str, filesystem: Filesystem) -> list[int]:
    """The numbers of all commits, from 1 on. Raises UnusableTable if one is missing."""
    directory = f"{root}/{COMMITS_DIR}"
    names = [name for name in filesystem.list_dir(directory) if name.endswith(".json")]
    generations = [int(name[:_DIGITS]) for name in sorted(names)]
    if generations != list(range(1, len(generations) + 1)):
        raise UnusableTable(f"{directory} lacks a commit: the archive is damaged")
    return generations


def read_commit(root: str, generation: int, filesystem: Filesystem) -> Mapping[str, Any]:
    """A commit with ``offsets``, ``topics``, ``files``. UnusableTable: damaged or too new."""
    path = _commit_path(root, generation)
    try:
        document = json.loads(filesystem.read_file(path))
        if document["format"] > FORMAT:
            raise UnusableTable(f"{path} has format {document['format']}: use a newer kafkalog")
        files_of(document)
        document["offsets"]
    except (ValueError, KeyError, TypeError) as error:
        raise UnusableTable(f"{path} is damaged: {error}") from error
    commit: Mapping[str, Any] = document
    return commit


def _entry_of(file: ArchivedFile) -> dict[str, Any]:
    """A file in a commit: its directory has no partitions but those of its name."""
    entry = file._asdict()
    assert entry.pop("partition_values") == ()
    return entry


def files_of(document: Mapping[str, Any]) -> list[ArchivedFile]:
    """The files of a commit, with paths relative to the root."""
    return [ArchivedFile(**each) for each in document["files"]]
