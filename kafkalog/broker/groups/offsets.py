"""GroupOffsets: how far groups have come, as records of the compacted `__consumer_offsets`.

Owns the topic (created at the first commit), its replay at the start, commits, and their deletion:
of deleted topics, of deleted groups, and of groups that were not used for
``offsets.retention.minutes``. Knows no members: ``groups/consumers`` does. A commit is one batch
appended to the partition that the group's name gives, not through the checks for clients, and
counts when it is as durable as ``offsets.commit.required.acks`` asks; the answer comes then.

A partition's commits are changed by the one thread that completes commands, in the order of the
log; other threads read whole dictionaries. Expiry and deletion decide under the mutex under which
commits are queued, and leave alone what is in flight.

In the replay, commits that a producer sent in a transaction count when its marker says so, and not
at all when it was aborted or never ended. Keys of other kinds are Kafka's and are skipped; a record
that breaks the format is logged and skipped.
Source: Kafka 4.1 GroupCoordinatorService, OffsetMetadataManager.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.access_rules import Action, Resource
from kafkalog.broker.authorized import internal, lists, open_to_all, operation_class, requires
from kafkalog.broker.directory.commands import AppendCommand
from kafkalog.broker.groups.lag_history import LagHistory
from kafkalog.broker.values import Acks
from kafkalog.errors import (
    CorruptData,
    InvalidRequest,
    KafkalogError,
    NotReady,
    UnknownPartition,
    UnsupportedMessageFormat,
)
from kafkalog.format.disk import group_offsets
from kafkalog.format.disk.group_offsets import CommittedOffset, GroupPartition
from kafkalog.format.integers import FormatError
from kafkalog.format.records.batch_builder import RecordColumns, build_plain_batch
from kafkalog.format.records.control_record import ControlRecordType, read_control_type
from kafkalog.format.records.record import iterate_records
from kafkalog.format.records.record_batch import is_control, is_transactional, iterate_batches
from kafkalog.format.topic_names import GROUP_OFFSETS_TOPIC, TopicPartition
from kafkalog.log.validator import validate_built
from kafkalog.log.values import Isolation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from kafkalog.broker.catalog import Logs
    from kafkalog.broker.directory.commands import Command
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.topics.changes import TopicChanges
    from kafkalog.env.threads import Signal
    from kafkalog.format.records.record_batch import BatchHeader
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import ValidatedRecords

    ReplayedChanges = dict[GroupPartition, CommittedOffset | None]
    Changes = Mapping[GroupPartition, CommittedOffset | None]
    OnDone = Callable[[KafkalogError | None], None]


_log = structlog.get_logger(__name__)


class GroupOffsetsReplay:
    """See the module."""

    def __init__(
        self, apply: Callable[[Mapping[GroupPartition, CommittedOffset | None]], None]
    ) -> None:
        """``apply`` gets the changes of each batch, or of each transaction, in order."""
        self._apply = apply
        self._open: dict[int, ReplayedChanges] = {}  # by producer id

    def read(self, batches: bytes | memoryview, max_batch_bytes: int) -> None:
        """Whole batches as they lie in the log."""
        for header, batch in iterate_batches(batches):
            try:
                self._read_batch(header, batch, max_batch_bytes)
            except FormatError as error:
                _log.error(
                    "group_offsets_unreadable", offset=header.base_offset, reason=error.reason
                )

    def _read_batch(self, header: BatchHeader, batch: memoryview, max_batch_bytes: int) -> None:
        records = iterate_records(batch, max_batch_bytes)
        producer_id = header.producer_id
        if is_control(header.attributes):
            for marker in records:
                changes = self._open.pop(producer_id, {})
                if read_control_type(marker.key) is ControlRecordType.COMMIT:
                    self._apply(changes)
            return
        is_open = is_transactional(header.attributes)
        changes = self._open.setdefault(producer_id, {}) if is_open else {}
        for record in records:
            try:
                key = group_offsets.decode_key(record.key) if record.key is not None else None
                if key is not None:
                    changes[key] = (
                        None if record.value is None else group_offsets.decode_value(record.value)
                    )
            except FormatError as error:
                _log.error("group_offset_unreadable", offset=record.offset, reason=error.reason)
        if not is_open:
            self._apply(changes)


LOAD_TASK = "kafkalog-group-offsets-load"
EXPIRY_TASK = "delete-expired-group-metadata"  # Kafka's name

_READ_BYTES = 1 << 20
_MINUTE_MS = 60_000
_RECORDS = 500  # a batch of them without metadata stays far below max.message.bytes


@dataclass(slots=True, eq=False)
class Shard:
    """The commits in one partition of the topic."""

    # owned by the completing thread, published
    groups: dict[str, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    # under the mutex: changes that are queued and not applied yet
    in_flight: Counter[GroupPartition] = field(default_factory=Counter)

    def commits(self) -> list[tuple[GroupPartition, CommittedOffset]]:
        """All of them at this moment."""
        return [
            (GroupPartition(group, at.topic, at.partition), committed)
            for group, offsets in list(self.groups.items())
            for at, committed in list(offsets.items())
        ]

    def get(self, key: GroupPartition) -> CommittedOffset | None:
        """One of them."""
        return self.groups.get(key.group, {}).get(TopicPartition(key.topic, key.partition))

    def apply(self, changes: Changes) -> None:
        """What the log holds now; None takes the commit away."""
        for key, committed in changes.items():
            at = TopicPartition(key.topic, key.partition)
            if committed is not None:
                self.groups.setdefault(key.group, {})[at] = committed
                continue
            offsets = self.groups.get(key.group, {})
            offsets.pop(at, None)
            if not offsets:
                self.groups.pop(key.group, None)


def is_expired(committed: CommittedOffset, used_ms: int, now_ms: int, retention_ms: int) -> bool:
    """Whether a commit expired: at its own expiry, else retention_ms after its group's last use.

    used_ms     wall clock when the group last had members; 0: not since the start
    """
    if committed.expire_timestamp_ms != group_offsets.NO_EXPIRY:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - max(committed.commit_timestamp_ms, used_ms) >= retention_ms


@operation_class()
class GroupOffsets:
    """See the module."""

    def __init__(self, logs: Logs, runtime: Runtime, topics: TopicChanges) -> None:
        # constant after construction
        self._logs = logs
        self._registry = logs.registry
        self._runtime = runtime
        self._config = runtime.config
        self._topics = topics
        self._mutex = runtime.threads.mutex()
        self._acks = Acks.ALL if runtime.config.offsets_commit_required_acks == -1 else Acks.LEADER
        self._used_ms: Callable[[str], int] = lambda _: 0
        # published when loaded; added under the mutex
        self._shards: dict[int, Shard] = {}
        # under the mutex
        self._loading: set[int] = set()
        self._forgotten: set[str] = set()  # topics, while not everything is loaded
        # under a mutex of their own, held while a file is read
        self._reads = runtime.threads.mutex()
        self._is_stopped = False
        self.lag_history = LagHistory()

    # ---- start

    @internal
    def start(self) -> None:
        """Load every partition in the background. Its groups are NotReady until then."""
        for number in range(self._partition_count()):
            self._schedule_load(number)

    @internal
    def stop(self) -> None:
        """No file of the topic is read any more on return."""
        with self._reads:
            self._is_stopped = True

    @internal
    def watch_use(self, used_ms: Callable[[str], int]) -> None:
        """Where to learn when a group last had members; see ``is_expired``. Any thread asks."""
        self._used_ms = used_ms

    @open_to_all
    def create_topic(self) -> None:
        """Make `__consumer_offsets` unless it exists; durable on return. Blocks. StorageFault."""
        config = self._config
        overrides = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        }
        with self._registry.edit():
            if not self._partition_count():
                count = config.offsets_topic_num_partitions
                self._topics.create(GROUP_OFFSETS_TOPIC, count, overrides)
                with self._mutex:
                    for number in range(count):
                        self._shards.setdefault(number, Shard())

    # ---- any thread, never blocking on the disk

    @property
    @open_to_all
    def has_topic(self) -> bool:
        """Whether a commit can be queued without ``create_topic``."""
        return self._partition_count() > 0

    @requires(Action.DESCRIBE, Resource.GROUP, "group")
    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """The group's commits; none of an unknown group.

        NotReady while they are loaded, else what keeps their partition from being served.
        """
        return dict(self._commits_of(group))

    @requires(Action.DESCRIBE, Resource.GROUP, "group")
    def committed_of(self, group: str, at: TopicPartition) -> CommittedOffset | None:
        """One of the group's commits; errors as ``committed``."""
        return self._commits_of(group).get(at)

    @lists(Resource.GROUP)
    def groups(self) -> list[str]:
        """Names of all groups that have commits, sorted; errors as ``committed``."""
        count = self._partition_count()
        if not count:
            self._registry.check_ready()
        shards, missing = list[Shard](), list[NotReady]()
        for number in range(count):
            try:
                shards.append(self._shard_at(number))
            except NotReady as error:  # the next one is asked for all the same, and so is loaded
                missing.append(error)
        if missing:
            raise missing[0]
        return sorted(name for shard in shards for name in list(shard.groups))

    @requires(Action.DESCRIBE, Resource.TOPIC, "at")
    def check_exists(self, at: TopicPartition) -> None:
        """UnknownTopic, UnknownPartition; it may be out of service."""
        topic = self._logs.registered(at.topic)
        if not 0 <= at.partition < topic.partition_count:
            raise UnknownPartition(
                f"Topic {at.topic} has no partition {at.partition}",
                topic=at.topic,
                partition=at.partition,
            )

    @requires(Action.READ, Resource.GROUP, "group")
    def submit(
        self, group: str, commits: Mapping[TopicPartition, CommittedOffset], on_done: OnDone
    ) -> None:
        """Queue a commit; ``on_done`` hears of its outcome where commands are completed.

        Raised here, and nothing is queued: InvalidRequest, UnknownTopic, UnknownPartition,
        NotReady, Overloaded, StorageFault. All of the commits are in one batch: all or none.
        """
        changes: dict[GroupPartition, CommittedOffset | None] = {}
        for at, committed in commits.items():
            changes[GroupPartition(group, at.topic, at.partition)] = committed
            self._check(group, committed)
        number = self._number_of(group)
        self._shard_at(number)
        with self._mutex:
            for at in commits:  # under the mutex: see forget_topic
                self.check_exists(at)
            self._append(number, changes, on_done)

    # ---- blocking, for control threads and tasks

    @requires(Action.DELETE, Resource.GROUP, "group")
    def delete(self, group: str, topics: Collection[str] | None = None) -> int:
        """Take away the group's commits, or those to these topics; how many. Durable on return.

        Errors as ``submit``.
        """
        if not self.has_topic:
            return 0
        return self._remove(
            self._number_of(group),
            lambda _, key: key.group == group and (topics is None or key.topic in topics),
        )

    @internal
    def forget_topic(self, topic: str) -> None:
        """All commits to a topic go: it was deleted, or a new one of that name is to be made.

        Called while the registry does not have it, so later commits are refused. What cannot be
        written is logged, and tried again when a topic of that name is made.
        """
        with self._mutex:
            if len(self._shards) < self._partition_count():
                self._forgotten.add(topic)  # and of what is not loaded yet
        for number in list(self._shards):
            try:
                self._remove(number, lambda _, key: key.topic == topic)
            except KafkalogError as fault:
                _log.warning(
                    "group_offsets_not_removed", topic=topic, partition=number, reason=fault.message
                )

    @internal
    def expire_once(self) -> None:
        """Take away what expired, also of topics that are not here (yet). Loop body."""
        for number in list(self._shards):
            self._remove(number, self._is_over)

    def _is_over(self, shard: Shard, key: GroupPartition) -> bool:
        committed = shard.get(key)
        if committed is None or key in shard.in_flight:
            return False  # a commit on its way is young
        retention_ms = self._config.offsets_retention_minutes * _MINUTE_MS
        now_ms = self._runtime.clock.wall_ms()
        return is_expired(committed, self._used_ms(key.group), now_ms, retention_ms)

    def _remove(self, number: int, is_doomed: Callable[[Shard, GroupPartition], bool]) -> int:
        """Tombstones for what is doomed, some at a time, and wait for them; how many."""
        shard = self._shard_at(number)
        with self._mutex:
            in_flight = list(shard.in_flight)
        keys = dict.fromkeys((*in_flight, *(key for key, _ in shard.commits())))
        candidates = iter([key for key in keys if is_doomed(shard, key)])
        removed = 0
        while some := list(islice(candidates, _RECORDS)):
            done, faults = self._runtime.threads.signal(), list[KafkalogError | None]()

            def finish(
                error: KafkalogError | None,
                done: Signal = done,
                faults: list[KafkalogError | None] = faults,
            ) -> None:
                faults.append(error)
                done.set()

            with self._mutex:  # again: they may have been committed meanwhile
                doomed = [key for key in some if is_doomed(shard, key)]
                if not doomed:
                    continue
                self._append(number, dict.fromkeys(doomed), finish)
            done.wait()
            if faults[0] is not None:
                raise faults[0]
            removed += len(doomed)
        return removed

    # ---- parts

    def _partition_count(self) -> int:
        topic = self._registry.state.topics.get(GROUP_OFFSETS_TOPIC)
        return 0 if topic is None else topic.partition_count

    def _commits_of(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        if not self.has_topic:
            self._registry.check_ready()
            return {}
        return self._shard_at(self._number_of(group)).groups.get(group, {})

    def _number_of(self, group: str) -> int:
        return group_offsets.partition_of_group(group, self._partition_count())

    def _shard_at(self, number: int) -> Shard:
        """The loaded partition; its fault, or NotReady while it is loaded."""
        shard = self._shards.get(number)
        if shard is None:
            self._logs.log_of(GROUP_OFFSETS_TOPIC, number)  # raises what keeps it from serving
            self._schedule_load(number)
            raise NotReady("The offsets of this group are being loaded")
        return shard

    def _check(self, group: str, committed: CommittedOffset) -> None:
        """InvalidRequest for what no record can hold or Kafka refuses."""
        fault = group_offsets.text_fault(group) if group else "is empty"
        if fault is not None:
            raise InvalidRequest(f"The name of the group {fault}")
        limit = self._config.offset_metadata_max_bytes
        fault = group_offsets.text_fault(committed.metadata)
        if fault is not None or len(committed.metadata.encode()) > limit:
            raise InvalidRequest(
                f"The committed offset's metadata {fault or 'is too large'}; "
                f"offset.metadata.max.bytes is {limit}"
            )
        if committed.offset < 0:
            raise InvalidRequest(f"An offset is never negative: {committed.offset}")

    def _append(self, number: int, changes: Changes, on_done: OnDone) -> None:
        """Queue records for the changes; under the mutex, so that queue order is their order."""
        shard, log = self._shards[number], self._logs.log_of(GROUP_OFFSETS_TOPIC, number)

        def finish(command: Command) -> None:
            with self._mutex:
                if command.error is None:
                    shard.apply(changes)
                shard.in_flight -= Counter(changes.keys())
            on_done(command.error)

        command = AppendCommand(log, self._records(log, changes), self._acks, None, finish)
        self._logs.unit_of(log).writer.submit(command)
        shard.in_flight += Counter(changes.keys())

    def _records(self, log: UnifiedLog, changes: Changes) -> ValidatedRecords:
        columns = RecordColumns.of(
            [group_offsets.encode_key(key) for key in changes],
            [
                None if value is None else group_offsets.encode_value(value)
                for value in changes.values()
            ],
            self._runtime.clock.wall_ms(),
        )
        return validate_built(
            build_plain_batch(columns),
            log.config,
            self._runtime.clock.wall_ms(),
            max_decompressed_bytes=self._config.max_decompressed_batch_bytes,
        )

    # ---- loading

    def _schedule_load(self, number: int) -> None:
        with self._mutex:
            if number in self._loading or number in self._shards:
                return
            self._loading.add(number)
        load = functools.partial(self._load, number)
        self._runtime.scheduler.schedule_once(LOAD_TASK, load, 0)

    def _load(self, number: int) -> None:
        """Read one partition and serve its groups. A failure is tried again when they are asked."""
        try:
            log = self._logs.log_of(GROUP_OFFSETS_TOPIC, number)
            shard = Shard()
            self._replay(log, shard)
            self._write(log, shard, self._clamped(shard))
            while stale := self._publish(number, shard):
                self._write(log, shard, stale)
        finally:
            with self._mutex:
                self._loading.discard(number)

    def _replay(self, log: UnifiedLog, shard: Shard) -> None:
        """All records from the log start; no commit is taken meanwhile, so the end is fixed."""
        replay = GroupOffsetsReplay(shard.apply)
        log_dir = self._logs.unit_of(log).log_dir
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            try:
                with self._reads, log_dir.guard():
                    if self._is_stopped:
                        raise NotReady("The daemon is stopping")
                    found = log.read(offset, _READ_BYTES, Isolation.LOG_END)
            except (CorruptData, UnsupportedMessageFormat) as damage:
                last_offset = damage.details.get("last_offset")
                if not isinstance(last_offset, int):
                    raise
                _log.error(
                    "group_offsets_lost_to_damage",
                    partition=str(log.topic_partition),
                    first_offset=offset,
                    last_offset=last_offset,
                    reason=damage.message,
                )
                offset = last_offset + 1
                continue
            replay.read(found.data, self._config.max_decompressed_batch_bytes)
            if found.next_offset <= offset:
                break  # nothing but a gap of compaction is left
            offset = found.next_offset

    def _publish(self, number: int, shard: Shard) -> Changes:
        """Serve the partition, unless a topic was deleted meanwhile: then its commits go first."""
        with self._mutex:
            stale = [key for key, _ in shard.commits() if key.topic in self._forgotten]
            if not stale:
                self._shards.setdefault(number, shard)
                if len(self._shards) == self._partition_count():
                    self._forgotten.clear()
        return dict.fromkeys(stale)

    def _clamped(self, shard: Shard) -> Changes:
        """After an unclean start no group may be ahead of its log: it would miss new records.

        Only records that were not durable are lost, but a commit may be when they were read with
        acks=1. The clamped offset is committed: the next start shall not find the old one.
        """
        changes: dict[GroupPartition, CommittedOffset | None] = {}
        for key, committed in shard.commits():
            try:
                read = self._logs.log_of(key.topic, key.partition)
            except KafkalogError:
                continue  # not served: nothing is known of its end
            end, log_dir = read.log_end_offset, self._logs.unit_of(read).log_dir
            if log_dir.was_clean or committed.offset <= end:
                continue
            _log.warning(
                "group_offset_clamped",
                group=key.group,
                partition=f"{key.topic}-{key.partition}",
                committed=committed.offset,
                log_end_offset=end,
            )
            self._runtime.metrics.group_offsets_clamped.inc()
            changes[key] = replace(committed, offset=end)
        return changes

    def _write(self, log: UnifiedLog, shard: Shard, changes: Changes) -> None:
        """Records for changes in a partition that is not served yet, and wait for them."""
        pending = iter(changes.items())
        while some := dict(islice(pending, _RECORDS)):
            command = AppendCommand(log, self._records(log, some), self._acks, None, None)
            self._logs.unit_of(log).writer.run(command)
            shard.apply(some)
