"""A huge partition in the job ``compact``: one round of the cleaner, a group of sources a task.

| phase | where | what |
| --- | --- | --- |
| open | here | load, roll, plan the groups (``cleaner.split_round``); ``.log`` files stay there |
| keys | a task a group | its keys with their last offsets, by parts of the hash; its transactions |
| merge | a task a part | the last offset of each key over all groups, for each group |
| rewrite | a task a group | the second pass with the map of the group's own keys, synced |
| close | here | the cleaned segments take the place of their sources; durable |

All huge partitions go through a phase together. The round takes every key, however small the map:
the files are those of one round with a large enough map. Values never leave their segment; of a key
24 bytes travel, in files, and of a transaction 72. A task needs memory for the keys of a group and
for its transactions, not for the partition's; so does the driver, for transactions.

What data a group may leave out as aborted hangs on markers before it, which others read at the same
time: the state is guessed from the transaction indexes, and a group whose guess was wrong (a marker
is missing) is read again. The tasks are ``split_tasks``; the caller removes the run's directory
after an error.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkalog.cleaner.cleaner_config import CleanerConfig
from kafkalog.cleaner.log_to_clean import LogToClean
from kafkalog.cleaner.offline_clean import CompactOptions, at_once, load_to_clean
from kafkalog.cleaner.split_round import (
    SplitRound,
    first_pass_states,
    guessed_states,
    plan_split,
    second_pass_states,
)
from kafkalog.cleaner.swapping import swap_in
from kafkalog.env.clock import FixedWallClock
from kafkalog.env.overlay import overlay_in
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.file_names import DELETED_SUFFIX, LOG_SUFFIX
from kafkalog.log.offline_log import flush_and_close, naming_source
from kafkalog.spark.jobs.compacted_partition import (
    CompactedPartition,
    finish_directory,
    made_in,
    remove_directory,
)
from kafkalog.spark.jobs.split_tasks import (
    KEYS_PREFIX,
    OUTCOME_NAME,
    FilterTask,
    MapTask,
    MergeTask,
    map_keys,
    merge_keys,
    rewrite,
)
from kafkalog.spark.jobs.tasks import Job, run_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kafkalog.cleaner.split_round import CleanedPiece
    from kafkalog.cleaner.transaction_events import SourceEvents
    from kafkalog.env.overlay import OverlayFilesystem
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import AbortedTransaction
    from kafkalog.spark.jobs.fleet import FleetPartition
    from kafkalog.spark.jobs.split_tasks import MappedGroup, RewrittenGroup
    from kafkalog.spark.jobs.tasks import Progress, ResultT, Runner, TaskT


PART_BYTES = 1 << 30
"""Of log, about, whose keys a task of the phase ``merge`` has in memory: parts go by bytes, as each
group has rows in every part, which are read one by one."""


@dataclass(frozen=True, slots=True)
class SplitOrder:
    """What all partitions of a job share.

    run         its directory
    map_bytes   memory for keys of the phase ``keys``
    part_bytes  see PART_BYTES
    """

    run: str
    now_ms: int
    map_bytes: int
    part_bytes: int = PART_BYTES


class _Split:
    """One partition on its way."""

    def __init__(self, partition: FleetPartition, order: SplitOrder) -> None:
        # constant after construction
        self._partition = partition
        self._order = order
        self._work = f"{order.run}/{partition.name}.split"
        self._directory = f"{self._work}/log/{partition.name}"
        self._filesystem = SystemFilesystem()
        # known when the log is open
        self._shown: OverlayFilesystem
        self._log: UnifiedLog
        self.round: SplitRound
        self._bytes_before = 0
        self._part_count = 0
        # of each group
        self._states: list[frozenset[AbortedTransaction]] = []
        self._mapped: dict[int, MappedGroup] = {}
        self._retried: dict[int, int] = {}

    def open(self) -> UnifiedLog:
        """Load and roll it over the source; the log, whose handles are the caller's too."""
        self._filesystem.make_dir(f"{self._work}/log")
        source, now_ms = self._partition, self._order.now_ms
        self._shown = overlay_in(self._directory, source.directory, LOG_SUFFIX)
        with naming_source(self._directory, source.directory, self._filesystem):
            self._log = load_to_clean(
                self._directory,
                replace(source.config, cleanup_policy=frozenset({"compact"})),
                CompactOptions(
                    log_start=source.log_start_offset,
                    known_end=source.high_watermark or 0,
                    roll=True,
                ),
                FixedWallClock(now_ms),
                self._shown,
            )
        self._bytes_before = self._log.size_bytes
        return self._log

    def plan(self) -> None:
        """The round, and how many parts its keys go in: as many as groups by default, or fewer."""
        now_ms = self._order.now_ms
        to_clean = LogToClean.of(self._log, None, now_ms)
        self.round = plan_split(to_clean, now_ms, self._shown.place_of)
        self._states = guessed_states(self.round)
        size_bytes = sum(each.size_bytes for each in self.round.groups)
        self._part_count = min(-(-size_bytes // self._order.part_bytes), len(self.round.groups))

    def map_task(self, number: int, attempt: int) -> MapTask:
        """Of one group, with the state that is known of it now."""
        groups = self.round.groups
        return MapTask(
            self._work,
            self._partition.directory,
            self.round.facts,
            groups[number],
            number,
            attempt,
            self._states[number],
            self._part_count,
            self._order.map_bytes,
        )

    def take_mapped(self, mapped: Mapping[int, MappedGroup], attempt: int) -> list[int]:
        """Groups by number; those that were read with a state that the events of all disprove."""
        self._mapped |= mapped
        if attempt:
            self._retried |= dict.fromkeys(mapped, attempt)
        guessed, self._states = self._states, first_pass_states(self.round, self._events())
        return [number for number, each in enumerate(self._states) if each != guessed[number]]

    def _events(self) -> Iterator[tuple[SourceEvents, ...]]:
        """Of all groups; one of them is in memory at a time."""
        for number in range(len(self.round.groups)):
            yield self._mapped[number].read_events(self._filesystem)

    def merge_tasks(self) -> list[MergeTask]:
        """A task a part of the hashes."""
        rows = sum(each.key_rows for each in self._mapped.values())
        return [
            MergeTask(
                self._work,
                self._partition.directory,
                part,
                len(self.round.groups),
                self._retried,
                rows // self._part_count,
            )
            for part in range(self._part_count)
        ]

    def filter_tasks(self) -> list[FilterTask]:
        """A task a group, with its keys out of every part; what phase ``keys`` made goes."""
        states = second_pass_states(self.round, self._events())
        self._forget_mapped()
        return [
            FilterTask(
                self._work,
                self._partition.directory,
                self.round.facts,
                group,
                number,
                states[number],
                self._part_count,
            )
            for number, group in enumerate(self.round.groups)
        ]

    def _forget_mapped(self) -> None:
        """Makes room for what is rewritten. Those of disproved guesses go, too."""
        self._mapped.clear()
        for name in self._filesystem.list_dir(self._work):
            if name.startswith(KEYS_PREFIX):
                self._filesystem.unlink(f"{self._work}/{name}")

    def close(
        self, tasks: Sequence[FilterTask], rewritten: Sequence[RewrittenGroup]
    ) -> CompactedPartition:
        """Swap in what was rewritten; the partition lies in its place, synced, afterwards."""
        for task, group in zip(tasks, rewritten, strict=True):
            self._swap_in(task, group.pieces)
        log, source, facts = self._log, self._partition, self.round.facts
        row = CompactedPartition(
            topic=source.topic,
            partition=source.partition,
            source=source.directory,
            bytes_before=self._bytes_before,
            bytes_after=log.size_bytes,
            records_removed=sum(
                each.stats.messages_read - each.stats.messages_written for each in rewritten
            ),
            records_without_key=sum(each.stats.invalid_messages_read for each in rewritten),
            rounds=1 if tasks else 0,
            log_start_offset=log.log_start_offset,
            cleaned_to=facts.end_offset if tasks else facts.first_dirty_offset,
        )
        flush_and_close(log)
        self._shown.fill(DELETED_SUFFIX)
        finish_directory(self._directory, self._filesystem)
        made = f"{made_in(self._order.run)}/{source.name}"
        self._filesystem.rename(self._directory, made)
        with suppress(OSError):  # a late second try still makes files: it goes with the run's
            remove_directory(self._work, self._filesystem)
        return row

    def _swap_in(self, task: FilterTask, pieces: Sequence[CleanedPiece]) -> None:
        self._filesystem.unlink(f"{task.place}/{OUTCOME_NAME}")
        for name in self._filesystem.list_dir(task.place):
            self._filesystem.rename(f"{task.place}/{name}", f"{self._directory}/{name}")
        log = self._log
        new = [each.segment(log.environment, log.local.directory, log.config) for each in pieces]
        old = log.segments.values_between(task.group.base_offset, task.group.end_offset)
        swap_in(log, new, old, at_once, operations_max=CleanerConfig().directory_operations_max)


class _Phases:
    """Runs a phase over all partitions, as a job of its own."""

    def __init__(self, runner: Runner, progress: Progress | None) -> None:
        self._runner = runner
        self._progress = progress

    def run(
        self, name: str, tasks: Sequence[Sequence[TaskT]], work: Callable[[TaskT], ResultT]
    ) -> list[list[ResultT]]:
        """The results, as the tasks, by partition. Raises TaskFailed."""
        flat = [task for some in tasks for task in some]
        results = iter(
            run_job(Job(f"compact, {name}", flat, work, list), self._runner, self._progress)
        )
        return [[next(results) for _ in some] for some in tasks]


def compact_split(
    partitions: Sequence[FleetPartition],
    order: SplitOrder,
    runner: Runner,
    progress: Progress | None = None,
) -> list[CompactedPartition]:
    """Compact the partitions into those that the run has made, in the order they are given in.

    Raises TaskFailed, KafkalogError, OSError; the run's directory is the caller's to remove.
    """
    phases = _Phases(runner, progress)
    splits = [_Split(each, order) for each in partitions]
    with ExitStack() as stack:
        for split in splits:
            stack.callback(split.open().close_handles)
            split.plan()
        _map(splits, phases)
        phases.run("merge", [each.merge_tasks() for each in splits], merge_keys)
        tasks = [each.filter_tasks() for each in splits]
        rewritten = phases.run("rewrite", tasks, rewrite)
        return [
            split.close(some_tasks, some)
            for split, some_tasks, some in zip(splits, tasks, rewritten, strict=True)
        ]


def _map(splits: Sequence[_Split], phases: _Phases) -> None:
    """Phase ``keys``, for groups with a wrong guess once more."""
    attempt, wanted = 0, [list(range(len(each.round.groups))) for each in splits]
    while any(wanted):
        tasks = [
            [split.map_task(number, attempt) for number in numbers]
            for split, numbers in zip(splits, wanted, strict=True)
        ]
        mapped = phases.run("keys", tasks, map_keys)
        wanted = [
            split.take_mapped(dict(zip(numbers, found, strict=True)), attempt) if numbers else []
            for split, numbers, found in zip(splits, wanted, mapped, strict=True)
        ]
        attempt += 1
