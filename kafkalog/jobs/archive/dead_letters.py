"""A table with typed columns, and beside it the table of the records that do not decode.

``NAMESPACE.TABLE_dead_letters`` has a record that does not decode as it is in the log, with the
reason. A commit is two: first that of the dead letters, if there are any, then that of the rows.
Both have a position. That of the rows counts, and the one of the dead letters says up to which
offset that table may have records.

Crash rule: a run that ends between the two leaves dead letters at and above the position of the
rows. The next run finds the position of the dead letters above that of the rows, reads which
offsets of those partitions are dead letters already, and leaves these out of both tables: also if
it has another schema, by which such a record would decode. A rollback of the rows is the same case.

Two jobs at once: both tables refuse the commit of a job whose position is not the one that it read.
A job that is refused by the rows behind its dead letters has left these: as a crash.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkalog.jobs.archive.formats.records import DeadOffsets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.jobs.archive.archive_table import ArchivedFile, FileStore, Position
    from kafkalog.jobs.archive.file_layout import FileLayout
    from kafkalog.jobs.archive.iceberg_table import IcebergTable

SUFFIX = "_dead_letters"


class WithDeadLetters:
    """``ArchiveTable`` of rows and dead letters; see the module. It owns both tables."""

    def __init__(self, rows: IcebergTable, dead: IcebergTable) -> None:
        """Raises UnusableTable."""
        # constant after construction
        self._rows, self._dead = rows, dead
        self.store: FileStore = rows.store
        self.dead_store: FileStore | None = dead.store
        found = _dead_offsets(rows.position, dead)
        self._topic_ids = {
            each.topic: dead.position.topic_ids[each.topic]
            for each in found
            if each.topic in dead.position.topic_ids
        }
        self.layout: FileLayout = replace(rows.layout, dead=found)

    @property
    def position(self) -> Position:
        """See ArchiveTable. A topic whose dead letters a run left has the id that it had then."""
        position = self._rows.position
        return replace(position, topic_ids={**self._topic_ids, **position.topic_ids})

    def commit(
        self, files: Sequence[ArchivedFile], position: Position, dead: Sequence[ArchivedFile] = ()
    ) -> None:
        """See ArchiveTable and the module."""
        if dead:
            self.commit_dead(position, dead)
        self._rows.commit(files, position)

    def commit_dead(self, position: Position, dead: Sequence[ArchivedFile]) -> None:
        """The first half of a commit; none if the second one would be refused."""
        self._rows.check_position()
        self._dead.commit(dead, _highest(self._dead.position, position))

    def widen(self, types: Mapping[str, Any]) -> None:
        """See ArchiveTable."""
        self._rows.widen(types)
        self.layout = replace(self._rows.layout, dead=self.layout.dead)

    def complete(self) -> None:
        """See ArchiveTable."""
        self._rows.complete()

    def abandon(self) -> None:
        """See ArchiveTable."""
        self._rows.abandon()
        self._dead.abandon()

    def close(self) -> None:
        """See ArchiveTable."""
        try:
            self._rows.close()
        finally:
            self._dead.close()


def _highest(before: Position, position: Position) -> Position:
    """The position of a commit of dead letters: never below one before, see the module."""
    offsets = dict(position.next_offsets)
    for name, offset in before.next_offsets.items():
        offsets[name] = max(offset, offsets.get(name, 0))
    return replace(position, next_offsets=offsets)


def _dead_offsets(position: Position, dead: IcebergTable) -> tuple[DeadOffsets, ...]:
    """The dead letters at and above the position of the rows."""
    found = []
    for (topic, partition), end in sorted(dead.position.next_offsets.items()):
        begin = position.next_offsets.get((topic, partition), 0)
        if begin < end:
            offsets = dead.offsets_from(topic, partition, begin)
            if len(offsets):
                found.append(DeadOffsets(topic, partition, offsets))
    return tuple(found)
