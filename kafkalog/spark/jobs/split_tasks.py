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
from kafkalog.spark.jobs.key_rows import ROW_BYTES, RowFile, RowRange, parts_by_hash, read_rows

if TYPE_CHECKING:
    from kafkalog.cleaner.cleaned_transactions import CleanedTransactionMetadata
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.log.values import AbortedTransaction


@dataclass(frozen=True, slots=True)
class MapTask:
    """A group whose keys are wanted.

    source      directory of the partition, for messages
    attempt     0, 1: which state of transactions was known
    unfinished  that state
    part_count  of the hashes
    """

    work: str
    source: str
    facts: RoundFacts
    group: SplitGroup
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
    """What was read of a group; rows are in files, as there may be many.

    parts   its keys, by parts: as many ranges a part as the map was emptied
    events  of each source: rows of the table and ``mapped_from`` of SourceEvents
    """

    parts: tuple[tuple[RowRange, ...], ...]
    events: tuple[tuple[RowRange, int], ...]

    def read_events(self, filesystem: Filesystem) -> tuple[SourceEvents, ...]:
        """Of each source. OSError."""
        return tuple(
            SourceEvents(read_rows([rows], filesystem), mapped_from)
            for rows, mapped_from in self.events
        )


KEYS_PREFIX = "keys-"
"""Of the names of what phase ``keys`` makes in the work directory."""


def map_keys(task: MapTask) -> MappedGroup:
    """Phase ``keys``."""
    filesystem = SystemFilesystem()
    made = name_of_attempt(task.work, filesystem)
    place = f"{task.work}/{KEYS_PREFIX}{task.group.base_offset}-{task.attempt}"
    bounds: list[tuple[int, ...]] = []
    file = RowFile(made, filesystem)
    events = map_group(
        task.facts,
        task.group,
        sorted(task.unfinished, key=lambda each: each.first_offset),
        tool_environment(FixedWallClock(task.facts.now_ms)),
        map_bytes=task.map_bytes,
        on_entries=lambda rows: bounds.append(file.append(parts_by_hash(rows, task.part_count))),
    )
    ends = file.append([each.table for each in events])
    file.close()
    settle(made, place, filesystem)
    parts = (
        tuple(RowRange(place, each[part], each[part + 1]) for each in bounds)
        for part in range(task.part_count)
    )
    found = (
        (RowRange(place, start, end), each.mapped_from)
        for (start, end), each in zip(pairwise(ends), events, strict=True)
    )
    return MappedGroup(tuple(parts), tuple(found))


@dataclass(frozen=True, slots=True)
class MergeTask:
    """A part of the hashes; ``groups`` are its rows in each group."""

    work: str
    source: str
    part: int
    groups: tuple[tuple[RowRange, ...], ...]

    @property
    def label(self) -> str:
        """See Task."""
        return f"{self.source}, part {self.part} of the keys"

    @property
    def size_bytes(self) -> int:
        """See Task."""
        return sum(each.end - each.start for ranges in self.groups for each in ranges) * ROW_BYTES


def merge_keys(task: MergeTask) -> tuple[RowRange, ...]:
    """Phase ``merge``: for each group its keys of this part, with their last offsets."""
    filesystem = SystemFilesystem()
    made = name_of_attempt(task.work, filesystem)
    place = f"{task.work}/merged-{task.part}"
    file = RowFile(made, filesystem)
    merged = merge_entries([read_rows(ranges, filesystem) for ranges in task.groups])
    bounds = file.append(merged)
    file.close()
    settle(made, place, filesystem)
    return tuple(RowRange(place, start, end) for start, end in pairwise(bounds))


@dataclass(frozen=True, slots=True)
class FilterTask:
    """A group that is rewritten; ``keys`` are its own, of all parts."""

    work: str
    source: str
    facts: RoundFacts
    group: SplitGroup
    transactions: CleanedTransactionMetadata
    keys: tuple[RowRange, ...]

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
            read_rows(task.keys, filesystem),
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


def _outcome_in(place: str, filesystem: Filesystem) -> RewrittenGroup:
    """CorruptData for what no task writes there; OSError."""
    path = f"{place}/{OUTCOME_NAME}"
    try:
        return msgspec.json.decode(filesystem.read_file(path), type=RewrittenGroup)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = f"It is no outcome of a rewritten group: {error}"
        raise CorruptData(what, file=path, position=0) from error
