"""How far a run has come: which archived pieces may be committed, and which partitions failed.

Tasks end in any order, but a partition is committed in the order of its offsets, because a table
has one next offset for it. A piece is *ready* when all pieces of its partition before it are. Ready
pieces become commits of bounded size in the order in which they became ready. A partition that
fails at a piece keeps what is before it; its later pieces are left out, so that it holds up no
other partition. Pure; one thread.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.jobs.attempts import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kafkalog.jobs.archive.archive_files import ArchivedPiece
    from kafkalog.spark.logs.values import OffsetRange, Piece

    PartitionName = tuple[str, int]

MIN_COMMIT_BYTES = 1 << 30
"""Bytes of log in a commit: what a killed run does again."""

COMMITS_MAX = 1000
"""About so many a run makes, of any size: each rewrites what names all the table's snapshots."""


class ArchivedPartition(NamedTuple):
    """What a run archived of one partition; the next run begins at ``next_offset``.

    dead_letters  records that do not decode; ``rows`` are the others
    problem  why it ends there, for a partition that is quarantined: skipped in this run
    """

    topic: str
    partition: int
    from_offset: int
    next_offset: int
    rows: int = 0
    files: int = 0
    bytes: int = 0
    dead_letters: int = 0
    problem: str | None = None

    def then(self, later: ArchivedPartition) -> ArchivedPartition:
        """What two runs archived of one partition; ``problem`` is that of the later one."""
        counts = {name: getattr(self, name) + getattr(later, name) for name in _COUNTS}
        return later._replace(from_offset=self.from_offset, **counts)


def joined(
    before: Mapping[PartitionName, ArchivedPartition], rows: Iterable[ArchivedPartition]
) -> dict[PartitionName, ArchivedPartition]:
    """What runs archived before, and one more."""
    found = dict(before)
    for row in rows:
        known = found.get(row[:2])
        found[row[:2]] = row if known is None else known.then(row)
    return found


_COUNTS = ("rows", "files", "bytes", "dead_letters")


@dataclass(slots=True)
class _Partition:
    """One partition of a run.

    waiting  its pieces that are not ready, in order
    ended    those of them that are archived, by their first offset
    row      what is committed
    fault    why a piece cannot be archived
    """

    waiting: deque[Piece]
    row: ArchivedPartition
    ended: dict[int, ArchivedPiece] = field(default_factory=dict)
    fault: Exception | None = None


class Progress:
    """See the module."""

    def __init__(self, max_commit_bytes: int | None = None) -> None:
        """``max_commit_bytes``: see the property; None: of what is planned."""
        self._given_bytes = max_commit_bytes
        self._planned_bytes = 0
        self._partitions: dict[PartitionName, _Partition] = {}
        self._ready: deque[tuple[ArchivedPiece, int]] = deque()
        self._ready_bytes = 0

    @property
    def max_commit_bytes(self) -> int:
        """Of log in a commit; a larger piece has one of its own."""
        if self._given_bytes is not None:
            return self._given_bytes
        return max(MIN_COMMIT_BYTES, self._planned_bytes // COMMITS_MAX)

    def plan(self, wanted: OffsetRange, pieces: Sequence[Piece]) -> None:
        """A partition with these pieces, which are its whole range."""
        assert pieces
        assert pieces[0].range.from_offset == wanted.from_offset
        assert pieces[-1].range.to_offset == wanted.to_offset
        self._planned_bytes += sum(each.size_bytes for each in pieces)
        row = ArchivedPartition(*wanted[:3], wanted.from_offset)
        self._partitions[wanted[:2]] = _Partition(deque(pieces), row)

    def pieces(self) -> Iterator[Piece]:
        """The pieces to archive, by partition and offset; none behind a failed one."""
        for each in list(self._partitions.values()):
            for piece in list(each.waiting):
                if each.fault is None:
                    yield piece

    def archived(self, piece: Piece, archived: ArchivedPiece) -> ArchivedPiece | None:
        """A piece is archived; returned if it is of no use, because one before it failed."""
        own = self._partitions[piece.range[:2]]
        if piece not in own.waiting:
            return archived
        own.ended[piece.range.from_offset] = archived
        while own.waiting and own.waiting[0].range.from_offset in own.ended:
            first = own.waiting.popleft()
            self._ready.append((own.ended.pop(first.range.from_offset), first.size_bytes))
            self._ready_bytes += first.size_bytes
        return None

    def failed(self, piece: Piece, fault: Exception) -> list[ArchivedPiece]:
        """A piece cannot be archived: the archived pieces behind it, which are of no use."""
        own = self._partitions[piece.range[:2]]
        if piece not in own.waiting:  # behind one that failed before
            return []
        own.fault = fault
        before = own.waiting.index(piece)
        starts = [each.range.from_offset for each in islice(own.waiting, before, None)]
        own.waiting = deque(islice(own.waiting, before))
        return [own.ended.pop(each) for each in starts if each in own.ended]

    def refused(self, name: PartitionName, from_offset: int, fault: Exception) -> None:
        """A partition that cannot be planned, from an offset on."""
        row = ArchivedPartition(*name, from_offset, from_offset)
        self._partitions[name] = _Partition(deque(), row, fault=fault)

    def withdraw(self, name: PartitionName, fault: Exception) -> list[ArchivedPiece]:
        """Nothing more of a partition may be committed: its archived pieces, now of no use."""
        own = self._partitions[name]
        own.fault = own.fault or fault
        useless = [each for each, _ in self._ready if each.range[:2] == name]
        kept = [each for each in self._ready if each[0].range[:2] != name]
        self._ready, self._ready_bytes = deque(kept), sum(size for _, size in kept)
        useless += own.ended.values()
        own.waiting.clear()
        own.ended.clear()
        return useless

    def next_commit(self, *, is_last: bool) -> list[ArchivedPiece]:
        """The pieces of the next commit; none until there are enough, or all have ended."""
        most = self.max_commit_bytes
        if not self._ready or (self._ready_bytes < most and not is_last):
            return []
        pieces: list[ArchivedPiece] = []
        size = 0
        while self._ready and (not pieces or size + self._ready[0][1] <= most):
            piece, piece_bytes = self._ready.popleft()
            pieces.append(piece)
            size += piece_bytes
        self._ready_bytes -= size
        return pieces

    def committed(self, pieces: Sequence[ArchivedPiece]) -> None:
        """These pieces are in the table."""
        for each in pieces:
            own = self._partitions[each.range[:2]]
            row = own.row._replace(next_offset=each.range.to_offset)
            own.row = row._replace(
                rows=row.rows + sum(file.rows for file in each.files),
                files=row.files + len(each.files),
                bytes=row.bytes + sum(file.size_bytes for file in each.files),
                dead_letters=row.dead_letters + sum(file.rows for file in each.dead),
            )

    def unfinished(self) -> list[ArchivedPiece]:
        """The archived pieces that are not ready, of a run that ends early: of no use."""
        return [piece for own in self._partitions.values() for piece in own.ended.values()]

    def partitions_of(self, topic: str) -> list[PartitionName]:
        """The partitions of a topic that the run has."""
        return [name for name in self._partitions if name[0] == topic]

    def _in_order(self) -> list[tuple[PartitionName, _Partition]]:
        return sorted(self._partitions.items(), key=itemgetter(0))

    def rows(self) -> list[ArchivedPartition]:
        """What is committed of each partition, and why it is no more."""
        return [
            each.row if each.fault is None else each.row._replace(problem=reason_of(each.fault))
            for _, each in self._in_order()
        ]

    @property
    def faults(self) -> dict[PartitionName, Exception]:
        """Why partitions are quarantined."""
        found = {name: each.fault for name, each in self._in_order()}
        return {name: fault for name, fault in found.items() if fault is not None}
