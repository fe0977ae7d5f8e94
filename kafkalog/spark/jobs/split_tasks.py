"""The tasks of a split compaction; ``compact_split`` says what each of them is for.

Rules of tasks: what one makes gets the name that others look for when it is whole, by one rename,
and a second try makes the same. Nothing is synced but rewritten segments: a crash ends the job.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kafkalog.cleaner.cleaner_stats import CleanerStats  # noqa: TC001 - msgspec reads the hints
from kafkalog.cleaner.split_round import (
    CleanedPiece,
    RoundFacts,
    SplitGroup,
    filter_group,
    map_group,
    merge_entries,
)
from kafkalog.cleaner.transaction_events import SourceEvents
from kafkalog.env.clock import FixedWallClock
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.errors import CorruptData
from kafkalog.log.offline_log import tool_environment
from kafkalog.spark.jobs.compacted_partition import (
    finish_directory,
    make_attempt,
    name_of_attempt,
    remove_directory,
    settle,
)
from kafkalog.spark.jobs.key_rows import (
    ROW_BYTES,
    RowFile,
    RowRange,
    parts_by_hash,
    read_part,
    read_rows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalog.cleaner.cleaned_transactions import CleanedTransactionMetadata
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.values import AbortedTransaction
    from kafkalog.spark.jobs.key_rows import Rows


@dataclass(frozen=True, slots=True)
class MapTask:
    """A group whose keys are wanted.

    source      directory of the partition, for messages
    number      of the group in its round
    attempt     0, 1: which state of transactions was known
    unfinished  that state
    part_count  of the hashes
    """

    work: str
    source: str
    facts: RoundFacts
    group: SplitGroup
    number: int
    attempt: int
    unfinished: frozenset[AbortedTransaction]
    part_count: int
    map_bytes: int

    @property
    def label(self) -> str:
        """See Task."""
        return f"{self.source}, keys from offset {self.group.base_offset} on"

    @property
    def size_bytes(self) -> int:
        """See Task."""
        return self.group.size_bytes


class MappedGroup(NamedTuple):
    """What was read of a group; rows are in a file, as there may be many.

    key_rows  those of its keys
    events    of each source: rows of the table and ``mapped_from`` of SourceEvents
    """

    key_rows: int
    events: tuple[tuple[RowRange, int], ...]

    def read_events(self, filesystem: Filesystem) -> tuple[SourceEvents, ...]:
        """Of each source. OSError."""
        return tuple(
            SourceEvents(read_rows([rows], filesystem), mapped_from)
            for rows, mapped_from in self.events
        )


KEYS_PREFIX = "keys-"
"""Of the names of what phase ``keys`` makes in the work directory."""


def _keys_place(work: str, number: int, attempt: int) -> str:
    return f"{work}/{KEYS_PREFIX}{number}-{attempt}"


def _merged_place(work: str, part: int) -> str:
    return f"{work}/merged-{part}"


def map_keys(task: MapTask) -> MappedGroup:
    """Phase ``keys``: a block each time that the map was emptied, the events behind them."""
    filesystem = SystemFilesystem()
    made = name_of_attempt(task.work, filesystem)
    place = _keys_place(task.work, task.number, task.attempt)
    file = RowFile(made, filesystem)
    events = map_group(
        task.facts,
        task.group,
        sorted(task.unfinished, key=lambda each: each.first_offset),
        tool_environment(FixedWallClock(task.facts.now_ms)),
        map_bytes=task.map_bytes,
        on_entries=lambda rows: file.append_parts(parts_by_hash(rows, task.part_count)),
    )
    key_rows = file.row_count
    ends = [key_rows, *(file.append(each.table) for each in events)]
    file.close()
    settle(made, place, filesystem)
    found = (
        (RowRange(place, start, end), each.mapped_from)
        for (start, end), each in zip(pairwise(ends), events, strict=True)
    )
    return MappedGroup(key_rows, tuple(found))


@dataclass(frozen=True, slots=True)
class MergeTask:
    """A part of the hashes, out of all groups.

    retried    by number the attempt that counts of those groups of which it is not the first
    row_count  of the part, about
    """

    work: str
    source: str
    part: int
    group_count: int
    retried: Mapping[int, int]
    row_count: int

    @property
    def label(self) -> str:
        """See Task."""
        return f"{self.source}, part {self.part} of the keys"

    @property
    def size_bytes(self) -> int:
        """See Task."""
        return self.row_count * ROW_BYTES


def merge_keys(task: MergeTask) -> None:
    """Phase ``merge``: for each group its keys of this part, with their last offsets."""
    filesystem = SystemFilesystem()
    made = name_of_attempt(task.work, filesystem)
    places = (
        _keys_place(task.work, number, task.retried.get(number, 0))
        for number in range(task.group_count)
    )
    tables = [read_part([place], task.part, filesystem) for place in places]
    file = RowFile(made, filesystem)
    file.append_parts(merge_entries(tables))
    file.close()
    settle(made, _merged_place(task.work, task.part), filesystem)


@dataclass(frozen=True, slots=True)
class FilterTask:
    """A group that is rewritten, with its own keys of all parts."""

    work: str
    source: str
    facts: RoundFacts
    group: SplitGroup
    number: int
    transactions: CleanedTransactionMetadata
    part_count: int

    @property
    def label(self) -> str:
        """See Task."""
        return f"{self.source}, rewriting from offset {self.group.base_offset} on"

    @property
    def size_bytes(self) -> int:
        """See Task."""
        return self.group.size_bytes

    @property
    def place(self) -> str:
        """The directory that the cleaned segments come into."""
        return f"{self.work}/cleaned-{self.group.base_offset}"


OUTCOME_NAME = "outcome"
"""Beside the files of a rewritten group: its RewrittenGroup as JSON, as others may
write there, too: a pickle of theirs would run their code."""


class RewrittenGroup(NamedTuple):
    """What became of a group; the files are in ``FilterTask.place``."""

    pieces: tuple[CleanedPiece, ...]
    stats: CleanerStats


def rewrite(task: FilterTask) -> RewrittenGroup:
    """Phase ``rewrite``.

    Tells what is in the place: the files of another try, whose machine may compress otherwise, are
    of other sizes.
    """
    filesystem = SystemFilesystem()
    made = make_attempt(task.work, filesystem)
    try:
        made_here = filter_group(
            task.facts,
            task.group,
            deepcopy(task.transactions),  # the task may run again
            _merged_keys(task, filesystem),
            tool_environment(FixedWallClock(task.facts.now_ms)),
            made,
        )
        outcome = filesystem.open_write(f"{made}/{OUTCOME_NAME}", exclusive=True)
        outcome.pwrite(msgspec.json.encode(RewrittenGroup(*made_here)), 0)
        outcome.close()
        finish_directory(made, filesystem)
        settle(made, task.place, filesystem)
    finally:
        remove_directory(made, filesystem)
    return _outcome_in(task.place, filesystem)


def _merged_keys(task: FilterTask, filesystem: Filesystem) -> Rows:
    places = (_merged_place(task.work, part) for part in range(task.part_count))
    return read_part(places, task.number, filesystem)


def _outcome_in(place: str, filesystem: Filesystem) -> RewrittenGroup:
    """CorruptData for what no task writes there; OSError."""
    path = f"{place}/{OUTCOME_NAME}"
    try:
        return msgspec.json.decode(filesystem.read_file(path), type=RewrittenGroup)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = f"It is no outcome of a rewritten group: {error}"
        raise CorruptData(what, file=path, position=0) from error
