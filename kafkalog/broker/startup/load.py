"""DirectoryLoading: from the directories on disk to served logs.

Owns the pools of recovery threads and the decision what a failed load means: an I/O error takes its
directory offline; corrupt data or record formats that are no longer supported put that one
partition out of service with its reason. Nothing is served before ``load_all`` returns. Never
changes the registry. Source: Kafka's LogManager.loadLogs.

A full disk and short descriptors put a partition out of service until they are over; every other
fault waits for a restart. ``PartitionReload`` is the periodic task that tries again, one partition
at a time under the lock of the registry, so that its topic does not change and ``shutdown`` waits
for it; changes of topics wait as well, as long as a recovery takes. Has no counterpart in Kafka,
where such a start takes the directory offline.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from kafkalog.broker.directory.log_dir import CLEANER_OFFSETS, LOG_START_OFFSETS, RECOVERY_POINTS
from kafkalog.broker.directory.storage_fault import is_passing, remedy_of
from kafkalog.broker.values import Loading, UncleanStart
from kafkalog.errors import (
    CorruptCheckpoint,
    CorruptData,
    InvalidTopicConfig,
    KafkalogError,
    LoadStopped,
    LogDirOffline,
    StorageFault,
)
from kafkalog.format.disk.file_names import PARTITION_METADATA
from kafkalog.format.disk.properties import decode_partition_metadata, encode_partition_metadata
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import DirectoryState, directory_name, encode_id
from kafkalog.log.future_log import start_of_copy, take_epochs
from kafkalog.log.recovery.log_loader import LoadHooks, load_log
from kafkalog.log.values import NO_PROOF, LogProof

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kafkalog.broker.catalog import Logs, OutOfService
    from kafkalog.broker.directory.checkpoints import Checkpoints
    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.broker.directory.unit import LogDirUnit
    from kafkalog.broker.runtime import Runtime
    from kafkalog.broker.startup.plan import FoundPartition
    from kafkalog.broker.topics.registry import RegisteredTopic
    from kafkalog.env.clock import Clock
    from kafkalog.env.threads import Threads
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.recovery.corruption_policy import Corruption
    from kafkalog.log.state.producer_state import ProducerCheck
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.observe.metrics import Metrics


_LINE_PERIOD_NS = 10_000_000_000

_log = structlog.get_logger(__name__)

Job = tuple["FoundPartition", "RegisteredTopic"]


class DirectoryLoading:
    """Loads planned partitions of all directories in parallel."""

    def __init__(
        self,
        logs: Logs,
        runtime: Runtime,
        checkpoints: Checkpoints,
        progress: LoadProgress,
        check_producer: ProducerCheck,
    ) -> None:
        """``check_producer`` as LogEnvironment has it."""
        # constant after construction
        self._logs = logs
        self._table = logs.table
        self._config = runtime.config
        self._filesystem = runtime.filesystem
        self._threads = runtime.threads
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._checkpoints = checkpoints
        self._progress = progress
        self._check_producer = check_producer
        # single additions by recovery threads
        self._crashes: deque[BaseException] = deque()
        self._contradicted: set[str] = set()  # log directories, by path
        # set by any thread
        self.is_stopped = False

    def load_all(self, jobs: Sequence[tuple[LogDirUnit, list[Job]]]) -> None:
        """Load every job; a pool of ``num.recovery.threads.per.data.dir`` threads a directory.

        Once ``is_stopped`` is set no further partition is begun, one that is being recovered is
        given up, and a directory with some left does not count as loaded. A bug (any exception that
        is no KafkalogError and no OSError) ends the start: raised here.
        """
        self._progress.begin({unit.log_dir: len(partitions) for unit, partitions in jobs})
        started = []
        for unit, partitions in jobs:
            try:
                self._checkpoints.read(unit.log_dir)
            except StorageFault as fault:
                # Also where it would live: what it holds must not count as missing.
                _log.error("log_dir_not_loaded", log_dir=unit.log_dir.path, reason=fault.message)
                unit.log_dir.take_offline(fault.message)
                continue
            names = [found.topic_partition for found, _ in partitions]
            self._checkpoints.expect(unit.log_dir, names)
            load = partial(self._load_each, unit, deque(partitions))
            pool = min(self._config.num_recovery_threads_per_data_dir, len(partitions))
            for number in range(pool):
                name = f"log-recovery-{unit.log_dir.path}-{number}"
                started.append(self._threads.start(name, load, background=True))
        for thread in started:
            thread.join()
        if self._crashes:
            raise self._crashes[0]
        self._progress.end()
        for unit, _ in jobs:
            if unit.log_dir.is_online and self._checkpoints.are_complete(unit.log_dir):
                try:
                    self._checkpoints.drop_stale(unit.log_dir)
                    self._checkpoints.make_cleaner_offsets(unit.log_dir)
                    if unit.log_dir.path in self._contradicted:
                        # Where the checked one counts they agree from here on.
                        self._checkpoints.write_start_offsets(unit.log_dir)
                except StorageFault as fault:
                    _log.error(
                        "checkpoints_not_renewed", log_dir=unit.log_dir.path, reason=fault.message
                    )
                unit.log_dir.is_loaded = unit.log_dir.is_online

    def _load_each(self, unit: LogDirUnit, jobs: deque[Job]) -> None:
        """Body of the recovery threads of a directory: load what is left of its jobs."""
        log_dir = unit.log_dir
        try:
            while log_dir.is_online and not self.is_stopped:
                try:
                    partition, topic = jobs.popleft()
                except IndexError:
                    return  # there is none, or another thread took the last one
                started_ns, name = self._clock.monotonic_ns(), partition.topic_partition
                log = self.load(unit, name, topic, partition.path, was_clean=log_dir.was_clean)
                self._checkpoints.settle(log_dir, name)
                self._progress.log_done(log_dir, log, started_ns)
        except LoadStopped:
            return  # not settled: its checkpoint entries are kept
        except BaseException as error:  # noqa: BLE001 - a thread body: the start re-raises it
            self._crashes.append(error)

    def load(
        self,
        unit: LogDirUnit,
        topic_partition: TopicPartition,
        topic: RegisteredTopic,
        directory: str,
        *,
        was_clean: bool,
    ) -> UnifiedLog | None:
        """Load one partition into the table, as a log or as a fault (None). LoadStopped."""
        log_dir = unit.log_dir
        found = self._checkpoints.found
        try:
            with log_dir.guard():
                self._ensure_metadata(directory, topic)
                log = self._open(
                    unit,
                    directory,
                    topic,
                    found(log_dir, LOG_START_OFFSETS).get(topic_partition, 0),
                    found(log_dir, RECOVERY_POINTS).get(topic_partition, 0),
                    was_clean=was_clean,
                    was_cleaned=topic_partition in found(log_dir, CLEANER_OFFSETS),
                    proof=self._checkpoints.proof_of(log_dir, topic_partition, was_clean=was_clean),
                )
            self._table.add(log)
            return log
        except LoadStopped:
            raise  # no fault of the partition
        except FormatError as error:
            fault = CorruptCheckpoint(str(error), file=directory, position=0)
            self.put_out_of_service(topic_partition, fault, directory)
        except InvalidTopicConfig as error:
            self._refuse_config(unit, topic_partition, error, directory)
        except KafkalogError as error:
            self.put_out_of_service(topic_partition, error, directory)
        return None

    def load_again(
        self, unit: LogDirUnit, partition: OutOfService, topic: RegisteredTopic
    ) -> UnifiedLog | None:
        """Load, or make, a partition whose fault has passed; None: it has not.

        Recovers also after a clean stop, for what the failed load left is what a crash leaves. May
        take as long as a recovery. Under the lock of the registry, while the daemon serves.
        """
        log_dir, path = unit.log_dir, partition.directory
        try:
            with log_dir.guard():
                self._checkpoints.renew(log_dir)  # it may be the first time that it is made whole
                if not self._filesystem.exists(path):
                    log = self.create(unit, partition.topic_partition, topic)
                    self._table.add(log)
                    return log
                self._filesystem.sync_dir(log_dir.path)  # a creation may have failed before this
        except StorageFault as fault:
            self.put_out_of_service(partition.topic_partition, fault, path)
            return None
        try:
            return self.load(unit, partition.topic_partition, topic, path, was_clean=False)
        except LoadStopped:
            return None  # it is still out of service

    def _note_start(self, log_dir: LogDir) -> None:
        """Two files say different things of a log's start. Any recovery thread."""
        self._metrics.log_start_contradictions.labels(log_dir.path).inc()
        self._contradicted.add(log_dir.path)

    def _check_stop(self) -> None:
        """LoadStopped once ``is_stopped`` is set."""
        if self.is_stopped:
            raise LoadStopped("The daemon stops before all logs are loaded")

    def put_out_of_service(
        self,
        topic_partition: TopicPartition,
        fault: KafkalogError,
        directory: str,
        remedy: str | None = None,
    ) -> None:
        """Do not serve the partition; logged once."""
        before = self._table.find_fault(topic_partition)
        if before is None or type(before.fault) is not type(fault):
            _log.error(
                "partition_offline",
                partition=str(topic_partition),
                directory=directory,
                reason=fault.message,
                remedy=remedy_of(fault) if remedy is None else remedy,
            )
        if is_passing(fault):  # the directory serves: its own words would not say what is missing
            fault = type(fault)(
                f"Partition {topic_partition} is out of service until its log can be loaded: "
                f"{fault.message}",
                **fault.details,
            )
        if isinstance(fault, CorruptData):  # what clients are told of it names no file
            fault.details |= {
                "topic": topic_partition.topic,
                "partition": topic_partition.partition,
            }
        self._table.add_fault(topic_partition, fault, directory)

    def refuse(self, partition: FoundPartition, topic: RegisteredTopic) -> None:
        """Out of service: the partition's directory has another topic's id."""
        assert partition.topic_id is not None, "a directory without an id goes by its name"
        metadata = f"{partition.path}/{PARTITION_METADATA}"
        found, expected = encode_id(partition.topic_id), encode_id(topic.topic_id)
        self.put_out_of_service(
            partition.topic_partition,
            LogDirOffline(  # nothing is damaged: its place is taken, and may be given back
                f"Partition {partition.topic_partition} is out of service: {metadata} names topic "
                f"id {found}, but topic {topic.name} has {expected}",
                log_dir=partition.log_dir,
            ),
            partition.path,
            "Stop the daemon. If the records are this topic's, restore the file or delete it and "
            "start; if not, move the directory away and start with create.missing.partitions=true "
            "(the partition is then recreated, empty).",
        )

    def _refuse_config(
        self,
        unit: LogDirUnit,
        topic_partition: TopicPartition,
        error: InvalidTopicConfig,
        directory: str,
    ) -> None:
        """Out of service: nothing is damaged, and no client is at fault.

        The version that set it, or the broker's defaults, were others. Served under a guess of what
        was meant, records could go that the config was to keep.
        """
        topic, key = topic_partition.topic, error.details.get("key")
        change = f" --delete-config {key}" if key else ""
        self.put_out_of_service(
            topic_partition,
            LogDirOffline(
                f"Partition {topic_partition} is out of service: the configs of its topic are not "
                f"valid here: {error.message}",
                log_dir=unit.log_dir.path,
            ),
            directory,
            f"Change the config (kafkalog configs alter {topic}{change}) and start again, "
            "or start with the version, or the defaults, that it was set under.",
        )

    def refuse_orphan(self, partition: FoundPartition) -> None:
        """Out of service: of the partition there is only what a move has named, perhaps not all."""
        self.put_out_of_service(
            partition.topic_partition,
            LogDirOffline(
                f"No log directory serves partition {partition.topic_partition}; {partition.path} "
                "holds records of it, left by a move between log directories",
                log_dir=partition.log_dir,
            ),
            partition.path,
            "Stop the daemon and bring back the log directory that served the partition. If it is "
            f"lost, rename this directory to {partition.topic_partition} to serve what it holds "
            "(newer records may be missing), or move it away and start with "
            "create.missing.partitions=true to begin with an empty partition.",
        )

    def create(
        self, unit: LogDirUnit, topic_partition: TopicPartition, topic: RegisteredTopic
    ) -> UnifiedLog:
        """Make the directory of a new partition and its log, names durable on return.

        On the writer thread (or before it started). OSError is the caller's guard's matter. Crash:
        an empty or half-made directory is loaded or completed by the next start.
        """
        path = f"{unit.log_dir.path}/{topic_partition}"
        if self._filesystem.exists(path):
            self._set_aside(unit, path, topic_partition)
        log = self._make(unit, path, topic)
        log.losses.proof = LogProof(log_start_offset=0, is_gapless=True)
        log.epochs.assign(0, log.log_end_offset)  # as Kafka's leader does before the first append
        log.epochs.flush()
        self._filesystem.sync_dir(unit.log_dir.path)
        return log

    def create_future(
        self, unit: LogDirUnit, name: str, topic: RegisteredTopic, current: UnifiedLog
    ) -> UnifiedLog:
        """Make the empty copy of a log that is to move into the directory; as ``create``."""
        log = self._make(unit, f"{unit.log_dir.path}/{name}", topic)
        start = start_of_copy(current)
        if start:
            log.truncate_fully_and_start_at(start)
        take_epochs(log, current)
        log.epochs.flush()
        self._filesystem.sync_dir(unit.log_dir.path)
        return log

    def load_future(
        self, unit: LogDirUnit, topic_partition: TopicPartition, topic: RegisteredTopic, path: str
    ) -> UnifiedLog:
        """Load a copy that the start found; guarded. May take as long as a recovery.

        Cut at the first bad batch whatever is configured: what is cut is copied again. Never taken
        for clean: the last run may have ended before it loaded the copy. CorruptData.
        """
        recovery_points = self._checkpoints.found(unit.log_dir, RECOVERY_POINTS)
        with unit.log_dir.guard():
            try:
                return self._open(
                    unit,
                    path,
                    topic,
                    0,
                    recovery_points.get(topic_partition, 0),
                    was_clean=False,
                    corruption="kafka",
                )
            except FormatError as error:
                raise CorruptCheckpoint(str(error), file=path, position=0) from error

    def _make(self, unit: LogDirUnit, path: str, topic: RegisteredTopic) -> UnifiedLog:
        """A new directory with an empty log; its name is not durable yet."""
        self._filesystem.make_dir(path)
        self._ensure_metadata(path, topic)
        return self._open(unit, path, topic, 0, 0, was_clean=False)

    def _set_aside(self, unit: LogDirUnit, path: str, topic_partition: TopicPartition) -> None:
        """Rename what a creation that failed left behind: its metadata names a dead topic."""
        unique = unit.environment.random.uuid_bytes().hex()
        stray = directory_name(topic_partition, DirectoryState.STRAY, unique)
        self._filesystem.rename(path, f"{unit.log_dir.path}/{stray}")
        _log.warning(
            "directory_set_aside",
            directory=path,
            now=stray,
            reason="it was left behind by a deleted topic of the same name",
        )

    def _ensure_metadata(self, path: str, topic: RegisteredTopic) -> None:
        """Write the topic's id into a directory that has none, or one that is not readable."""
        metadata = f"{path}/{PARTITION_METADATA}"
        if self._filesystem.exists(metadata):
            try:
                decode_partition_metadata(self._filesystem.read_file(metadata))
                return
            except FormatError as error:
                _log.warning(
                    "partition_metadata_written_again",
                    directory=path,
                    topic_id=encode_id(topic.topic_id),
                    reason=f"it is damaged: {error}",
                )
        self._filesystem.write_file_atomically(metadata, encode_partition_metadata(topic.topic_id))

    def _open(
        self,
        unit: LogDirUnit,
        path: str,
        topic: RegisteredTopic,
        log_start_offset: int,
        recovery_point: int,
        *,
        was_clean: bool,
        was_cleaned: bool = False,
        corruption: Corruption | None = None,
        proof: LogProof = NO_PROOF,
    ) -> UnifiedLog:
        """The log of a directory; sole replica: the high watermark is the log end.

        ``was_cleaned``: compaction left gaps, whatever the topic's policy is by now.
        What was recovered after the recovery point is made durable first: it may be in the page
        cache of a process that was killed only, and from here on it is readable.
        """
        config = self._config
        configured: Corruption = "kafka" if config.log_recovery_corruption == "kafka" else "keep"
        log = load_log(
            path,
            self._logs.topic_config(topic),
            replace(unit.environment, check_producer=self._check_producer),
            clean=was_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            corruption=corruption or configured,
            topic_id=encode_id(topic.topic_id),
            producer_expiration_ms=config.producer_id_expiration_ms,
            may_have_gaps=was_cleaned,
            proof=proof,
            hooks=LoadHooks(
                note_recovery=partial(self._progress.recovery_changed, unit.log_dir.path),
                note_cut=partial(self._progress.bytes_cut, unit.log_dir.path),
                check_stop=self._check_stop,
                note_start_contradiction=partial(self._note_start, unit.log_dir),
            ),
        )
        if log.local.recovery_point < log.log_end_offset:
            plan = log.plan_flush()
            assert plan is not None, "the log reaches beyond what is durable"
            plan.run()
            log.mark_flushed(plan)
        log.update_high_watermark(log.log_end_offset)
        log.local.active_segment.release_files()
        return log


class PartitionReload:
    """See the module."""

    def __init__(
        self,
        logs: Logs,
        loading: DirectoryLoading,
        lower_archived: Callable[[Iterable[RegisteredTopic]], None],
    ) -> None:
        """``lower_archived``: see ``ArchivedOffsets.lower_to_ends``."""
        # constant after construction
        self._logs = logs
        self._registry = logs.registry
        self._loading = loading
        self._lower_archived = lower_archived

    def run_once(self, log_dir: LogDir) -> None:
        """Try those of one directory, none while its disk is full; guarded. May block for long."""
        for partition in self._logs.table.out_of_service(log_dir.path):
            if not is_passing(partition.fault):
                continue
            if log_dir.is_full:
                log_dir.measure_space()
            if log_dir.is_full:
                return
            self._load(self._logs.unit_at(log_dir.path), partition)

    def _load(self, unit: LogDirUnit, partition: OutOfService) -> None:
        """Serve the partition unless its topic is gone, the daemon stops, or the fault is not over.

        Crash: as in any load, the next start recovers.
        """
        topic_partition = partition.topic_partition
        with self._registry.lock:
            topic = self._registry.state.topics.get(topic_partition.topic)
            is_over = self._logs.table.find_fault(topic_partition) is not partition
            if topic is None or is_over or not self._registry.is_ready:
                return
            if self._loading.load_again(unit, partition, topic) is not None:
                self._lower_archived([topic])
                _log.info(
                    "partition_online",
                    partition=str(topic_partition),
                    directory=partition.directory,
                )


@dataclass(slots=True)
class _DirProgress:
    """One directory."""

    logs: int = 0
    done: int = 0
    segments_left: int = 0
    bytes_left: int = 0
    bytes_recovered: int = 0
    bytes_cut: int = 0
    is_unclean: bool = False  # it held logs, and no marker of a clean shutdown
    next_line_ns: int = 0


class LoadProgress:
    """How far the load of all log directories has come, as numbers and as log lines.

    Told by recovery threads, read by any thread. Lines carry Kafka's sentences where it has them;
    between the first and the last at most one per directory and ten seconds. Once loaded it counts
    on (topics are made, partitions loaded again) and says nothing.
    """

    def __init__(self, clock: Clock, threads: Threads, metrics: Metrics) -> None:
        # constant after construction
        self._clock = clock
        self._metrics = metrics
        self._mutex = threads.mutex()
        # changed under the mutex
        self._dirs = defaultdict[str, _DirProgress](_DirProgress)
        # set by the starting thread
        self._started_ns = 0
        self._is_over = False
        # published; None: the start was clean, or has not loaded everything yet
        self.unclean_start: UncleanStart | None = None

    @property
    def loading(self) -> Loading:
        """Sums over all directories; zeros before the directories were read."""
        dirs = tuple(self._dirs.values())
        elapsed_ns = self._clock.monotonic_ns() - self._started_ns if dirs else 0
        return Loading(
            partitions=sum(each.logs for each in dirs),
            partitions_loaded=sum(each.done for each in dirs),
            segments_to_recover=sum(each.segments_left for each in dirs),
            bytes_to_recover=sum(each.bytes_left for each in dirs),
            bytes_recovered=sum(each.bytes_recovered for each in dirs),
            elapsed_ms=elapsed_ns // 1_000_000,
        )

    def remaining_in(self, path: str) -> tuple[int, int]:
        """(logs, segments) of a directory that its start has left to load and to recover."""
        one = self._dirs.get(path)
        return (0, 0) if one is None else (max(one.logs - one.done, 0), one.segments_left)

    def begin(self, logs: dict[LogDir, int]) -> None:
        """Partitions to load per directory are known; a directory that was not clean is named."""
        self._started_ns = now_ns = self._clock.monotonic_ns()
        for log_dir, count in logs.items():
            path = log_dir.path
            with self._mutex:
                one = self._dirs[path]
                one.logs, one.next_line_ns = count, now_ns + _LINE_PERIOD_NS
                one.is_unclean = not (log_dir.was_clean or log_dir.is_fresh)
            self._metrics.recovery_remaining_logs.labels(path).set(count)
            if log_dir.was_clean:
                _log.info(
                    f"Skipping recovery of {count} logs from {path} since clean shutdown file was "
                    "found",
                    log_dir=path,
                )
            elif not log_dir.is_fresh:
                _log.warning(
                    f"Recovering {count} logs from {path} since no clean shutdown file was found",
                    log_dir=path,
                )

    def log_done(self, log_dir: LogDir, log: UnifiedLog | None, started_ns: int) -> None:
        """A partition was loaded, or put out of service (None)."""
        path, now_ns = log_dir.path, self._clock.monotonic_ns()
        with self._mutex:
            one = self._dirs[path]
            one.done += 1
            done, count, has_line = one.done, one.logs, self._takes_line(one, now_ns)
        self._metrics.recovery_remaining_logs.labels(path).dec()
        if has_line and log is not None:
            _log.info(
                f"Completed load of {log.topic_partition} with {len(log.segments)} segments, "
                f"local-log-start-offset {log.log_start_offset} and log-end-offset "
                f"{log.log_end_offset} in {(now_ns - started_ns) // 1_000_000}ms "
                f"({done}/{count} completed in {path})",
                log_dir=path,
            )

    def recovery_changed(self, path: str, segments: int, size_bytes: int) -> None:
        """So many more or, negative, fewer segments and bytes of the directory wait for it."""
        now_ns = self._clock.monotonic_ns()
        with self._mutex:
            one = self._dirs[path]
            one.segments_left += segments
            one.bytes_left += size_bytes
            one.bytes_recovered += max(0, -size_bytes)
            done, count, left = one.done, one.logs, one.segments_left
            has_line = not self._is_over and self._takes_line(one, now_ns)
        self._metrics.recovery_remaining_segments.labels(path).inc(segments)
        self._metrics.recovery_recovered_bytes.labels(path).inc(max(0, -size_bytes))
        if has_line:
            _log.info(
                f"Recovering unflushed segments. {left} left "
                f"({done}/{count} logs completed in {path})",
                log_dir=path,
            )

    def bytes_cut(self, path: str, size_bytes: int) -> None:
        """So many bytes of the directory's logs are no longer served."""
        with self._mutex:
            self._dirs[path].bytes_cut += size_bytes
        self._metrics.recovery_cut_bytes.labels(path).inc(size_bytes)

    def end(self) -> None:
        """Every directory's threads have ended."""
        self._is_over = True
        dirs = [each for each in self._dirs.values() if each.is_unclean]
        if dirs:
            self.unclean_start = UncleanStart(
                log_dirs=len(dirs),
                partitions=sum(each.done for each in dirs),
                bytes_recovered=sum(each.bytes_recovered for each in dirs),
                bytes_cut=sum(each.bytes_cut for each in dirs),
                elapsed_ms=self.loading.elapsed_ms,
                ended_ms=self._clock.wall_ms(),
            )
        took_ms = (self._clock.monotonic_ns() - self._started_ns) // 1_000_000
        loading = self.loading
        if loading.partitions_loaded == loading.partitions:
            _log.info(f"Loaded {loading.partitions} logs in {took_ms}ms")

    @staticmethod
    def _takes_line(one: _DirProgress, now_ns: int) -> bool:
        """Whether a line is due now; it is taken."""
        if now_ns < one.next_line_ns:
            return False
        one.next_line_ns = now_ns + _LINE_PERIOD_NS
        return True
