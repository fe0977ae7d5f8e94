"""A daemon without HTTP on the twins, its clients, and a check of every promise after a restart.

``DaemonRun`` is one world: a disk, one life of the daemon after the other, and what its clients
were told. Each call of the disk is a switch point of the simulated threads.
"""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.log_dir import CLEAN_SHUTDOWN_MARKER, REGISTRY_FILE
from kafkalog.broker.values import Acks, ConfigChange
from kafkalog.errors import InvalidRequest, PartitionMoving, StorageFault
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.records.record_batch import read_header
from kafkalog.format.topic_names import parse_directory_name
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.retention import execute
from kafkalog.log.values import Isolation, LogAppendInfo
from tests.crash.partition_run import check_producers, contents
from tests.naive.producers import NaiveProducers
from tests.partition_world import split_batches
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_manager import SimManager, records_of
from tests.simulation.promises import Attempt, PartitionPromises, TopicPromises

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.broker.directory.commands import Command
    from kafkalog.log.unified_log import UnifiedLog
    from tests.sim.sim_crash import CrashMode

NOW_MS = 1_700_000_000_000
DIRS = ("/data/a", "/data/b", "/data/c")
TOPIC_DEFAULTS = LogConfig(
    internal_segment_bytes=600, segment_index_bytes=240, index_interval_bytes=200
)
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
KEYS = 3  # of a compacted topic
DELETION_MS = 60_000
FETCH_BYTES = 4096


def new_disk(dirs: Sequence[str] = DIRS) -> SimFilesystem:
    """Mounted, empty log directories."""
    disk = SimFilesystem()
    for path in dirs:
        disk.make_dir(path)
    disk.sync_all()
    return disk


class DaemonRun:
    def __init__(
        self, disk: SimFilesystem, *, seed: int = 0, dirs: Sequence[str] = DIRS, racy: bool = True
    ) -> None:
        """``racy``: threads may change places at every call of the disk."""
        self.seed = seed
        self.lives = 0
        self.disk = disk
        self.racy = racy
        self.config = BrokerConfig(
            log_dirs=tuple(dirs),
            log_dir_min_free_bytes=0,
            log_cleaner_threads=2,
            log_cleaner_dedupe_buffer_size=3 << 20,  # filled with zeros for each clean
        )
        self.topics: dict[str, TopicPromises] = {}
        self.sequences: dict[tuple[str, int, int], int] = {}
        self.batch_count = 0
        self.daemon: SimManager | None = None

    @property
    def life(self) -> SimManager:
        assert self.daemon is not None
        return self.daemon

    # ---- lives

    def start(self) -> None:
        self.lives += 1
        self.daemon = SimManager(
            self.disk,
            seed=self.seed * 1000 + self.lives,
            config=self.config,
            topic_defaults=TOPIC_DEFAULTS,
        )
        if self.racy:
            self.disk.on_call = self.daemon.threads.switch_point
        self.daemon.start()

    def stop(self) -> None:
        """Orderly end. What a directory with a marker holds is durable."""
        life = self.life
        served = [(log, life.manager.logs.unit_of(log).log_dir.path) for log in self.logs()]
        life.manager.shutdown()
        life.scheduler.shutdown()
        life.threads.kill_all()
        self.disk.kill(keep_faults=True)
        for log, path in served:
            if self.disk.exists(f"{path}/{CLEAN_SHUTDOWN_MARKER}"):
                promises = self.promises_of(log)
                promises.durable_end = max(promises.durable_end, promises.answered_end)
        self._gone()

    def kill(self) -> None:
        """SIGKILL: the page cache lives."""
        self._end_threads()
        self.disk.kill()
        self._gone()

    def crash(self, mode: CrashMode, seed: int = 0) -> None:
        """Power cut; this life's disk is replaced by what is left of it."""
        self._end_threads()
        self.disk = self.disk.crash(mode, seed)
        self._gone()

    def _end_threads(self) -> None:
        if self.daemon is not None:
            self.daemon.threads.kill_all()

    def _gone(self) -> None:
        self.disk.on_call = None
        self.daemon = None

    # ---- what clients do

    def create_topic(
        self,
        name: str,
        partition_count: int,
        *,
        retention_bytes: int | None = None,
        compacted: bool = False,
    ) -> None:
        """Certain when it returns. With a limit the retention task may move the log starts."""
        old = self.topics.get(name)
        assert old is None or not old.exists
        has_retention = retention_bytes is not None
        self.topics[name] = promises = TopicPromises(
            partition_count, exists=True, has_retention=has_retention, is_compacted=compacted
        )
        configs = {"retention.bytes": str(retention_bytes)} if has_retention else {}
        if compacted:
            configs.update(COMPACT)
        try:
            self.life.operations.topics.create(name, partition_count, configs)
        except StorageFault:
            promises.exists = name in self.life.operations.topic_names()
            return
        promises.is_certain = True

    def grow_topic(self, name: str, partition_count: int) -> None:
        """Certain when it returns; refused, it may still show after a crash."""
        promises = self.topics[name]
        promises.asked_count = partition_count
        try:
            self.life.operations.topics.create_partitions(name, partition_count)
        except StorageFault:
            assert self.life.operations.partition_count(name) == promises.partition_count
            return
        promises.partition_count, promises.asked_count = partition_count, None
        promises.asked_config = None  # a later generation is durable

    def alter_topic(self, name: str, flush_messages: int) -> None:
        """Certain and in force when it returns; refused, it may still show after a crash."""
        promises = self.topics[name]
        promises.asked_config = flush_messages
        change = ConfigChange("flush.messages", str(flush_messages))
        try:
            self.life.operations.topics.alter_configs(name, [change])
        except StorageFault:
            return
        promises.flush_messages, promises.asked_config = flush_messages, None
        promises.asked_count = None
        for log in self.logs():
            if log.topic_partition.topic == name:
                assert log.config.flush_messages == flush_messages

    def move_partition(self, topic: str, partition: int, path: str) -> None:
        """Begin it; it goes on while threads run, and in the next life."""
        with suppress(StorageFault):
            self.life.operations.log_dirs.move(topic, partition, path)

    def delete_topic(self, name: str) -> None:
        """Certain when it returns."""
        promises = self.topics[name]
        promises.exists = promises.is_certain = False
        try:
            self.life.operations.topics.delete(name)
        except StorageFault:
            promises.exists = name in self.life.operations.topic_names()
            return
        promises.is_certain = True
        for key in [key for key in self.sequences if key[0] == name]:
            del self.sequences[key]

    def produce(
        self,
        topic: str,
        partition: int,
        acks: Acks,
        *,
        client: int = -1,
        size: int = 40,
        count: int = 1,
        repeat: Attempt | None = None,
    ) -> Attempt:
        """Send one batch; the answer comes while threads run. ``repeat``: send that one again."""
        promises = self.topics[topic].partition(partition)
        attempt = repeat
        if attempt is None:
            attempt = self._new_attempt(topic, partition, acks, client, size, count)
        elif acks is not Acks.ALL:
            attempt.acks = acks  # it may be this sending that is appended
        if attempt not in promises.present.values():
            promises.open.append(attempt)
        if attempt.client >= 0:
            promises.latest[attempt.client] = attempt

        def done(command: Command) -> None:
            self._note_answer(promises, attempt, acks, command)

        try:
            log = self.life.operations.partition_log(topic, partition)
            records = records_of(attempt.data, log)
            self.life.operations.submit_produce(log, records, acks, on_done=done)
        except StorageFault:
            promises.note_refused(attempt)
        return attempt

    def produced(
        self,
        topic: str,
        partition: int,
        acks: Acks,
        *,
        times: int = 1,
        client: int = -1,
        size: int = 40,
        count: int = 1,
    ) -> None:
        """Batches, each of which is sent and answered."""
        for _ in range(times):
            self.produce(topic, partition, acks, client=client, size=size, count=count)
            self.run_until_idle()

    def _new_attempt(
        self, topic: str, partition: int, acks: Acks, client: int, size: int, count: int
    ) -> Attempt:
        self.batch_count += 1
        key_bytes: bytes | None = None
        if self.topics[topic].is_compacted:
            key_bytes, client, count = b"key%d" % (self.batch_count * 7 // 3 % KEYS), -1, 1
        values: list[bytes | str | None] = [b"%06d." % self.batch_count + b"x" * size] * count
        key = (topic, partition, client)
        sequence = self.sequences.get(key, 0) if client >= 0 else -1
        if client >= 0:
            self.sequences[key] = sequence + count
        data = build_batch(
            RecordColumns.of([key_bytes] * count, values, NOW_MS),
            producer_id=client,
            producer_epoch=0 if client >= 0 else -1,
            base_sequence=sequence,
        )
        return Attempt(data, acks, client, sequence, key_bytes)

    def _note_answer(
        self, promises: PartitionPromises, attempt: Attempt, acks: Acks, command: Command
    ) -> None:
        if command.error is not None:
            if isinstance(command.error, InvalidRequest | PartitionMoving):
                promises.note_refused(attempt)
            elif not isinstance(command.error, StorageFault):
                raise command.error
            return
        info = command.result
        assert isinstance(info, LogAppendInfo)
        promises.note_present(info.first_offset, attempt)
        promises.answered_end = max(promises.answered_end, info.last_offset + 1)
        if acks is Acks.ALL:
            promises.durable_end = max(promises.durable_end, info.last_offset + 1)

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        """Send it; the answer comes while threads run."""
        promises = self.topics[topic].partition(partition)
        promises.start_asked = max(promises.start_asked, offset)

        def done(command: Command) -> None:
            if command.error is None:
                assert isinstance(command.result, int)
                promises.start = max(promises.start, command.result)
                promises.durable_end = max(promises.durable_end, promises.start)

        with suppress(StorageFault):
            self.life.operations.submit_delete_records(topic, partition, offset, done)

    def set_retention_bytes(self, topic: str, limit: int) -> None:
        """In force when it returns."""
        change = ConfigChange("retention.bytes", str(limit))
        self.life.operations.topics.alter_configs(topic, [change])

    def retain(self) -> int:
        """A pass of the retention task; how many segments went. A crash may keep what it takes."""
        for log in self.logs():
            promises = self.promises_of(log)
            planned = execute.plan_of(log, self.life.clock.wall_ms())
            promises.start_asked = max(promises.start_asked, planned.log_start_offset)
        try:
            return self.life.manager.retention.run_once()
        except StorageFault:
            return 0

    def fetch_all(self, topic: str, partition: int) -> None:
        """Read to the high watermark: what a reader sees of acks=all is durable (design 4.5)."""
        promises = self.topics[topic].partition(partition)
        operations = self.life.operations
        try:
            log = operations.partition_log(topic, partition)
            offset = log.log_start_offset
            while True:
                answer = operations.fetch(
                    operations.partition_log(topic, partition),
                    offset,
                    FETCH_BYTES,
                    Isolation.HIGH_WATERMARK,
                    may_block=True,
                )
                for data in split_batches(bytes(answer.data)):
                    header = read_header(data)
                    batch = (header.base_offset, header.last_offset, data)
                    attempt = promises.meet(batch)
                    if attempt is not None and attempt.acks is Acks.ALL:
                        assert header.next_offset <= log.recovery_point, "read, and not durable"
                        promises.durable_end = max(promises.durable_end, header.next_offset)
                if not answer.data:
                    is_at_end = offset >= min(answer.high_watermark, log.high_watermark)
                    assert is_at_end or promises.is_compacted, "I9: a gap"
                    return
                offset = answer.next_offset
        except StorageFault:
            return

    def check_offsets(self, topic: str, partition: int) -> None:
        """Earliest, latest and a time in the past (I11: every record carries the same one)."""
        promises = self.topics[topic].partition(partition)
        operations = self.life.operations

        def ask(timestamp_ms: int) -> int | None:
            found = operations.list_offset(
                operations.partition_log(topic, partition),
                timestamp_ms,
                Isolation.HIGH_WATERMARK,
                may_block=True,
            )
            return None if found is None else found.offset

        try:
            earliest, latest, first = ask(-2), ask(-1), ask(NOW_MS)
        except StorageFault:
            return
        assert earliest is not None
        assert latest is not None
        assert promises.start <= earliest <= latest
        assert latest >= promises.durable_end, "answered, and not readable"
        if promises.is_compacted:
            assert first is None or earliest <= first < latest
            return
        expected = earliest if latest > earliest else None
        assert first == expected, f"I11: {first} is not the first offset, {expected}"

    def run_until_idle(self) -> None:
        self.life.threads.run_until_idle()

    # ---- checks

    def logs(self) -> list[UnifiedLog]:
        """Logs of this life that are served."""
        manager = self.life.manager
        return [
            log for log in manager.logs.table.logs() if manager.logs.unit_of(log).log_dir.is_online
        ]

    def promises_of(self, log: UnifiedLog) -> PartitionPromises:
        partition = log.topic_partition
        return self.topics[partition.topic].partition(partition.partition)

    def check_life(self) -> None:
        """Invariants of every served log, between two commands."""
        self.check_durable()
        self.run_until_idle()
        self.check_durable()
        for log in self.logs():
            try:
                with self.life.manager.logs.unit_of(log).log_dir.guard():
                    if not log.is_broken:
                        check_invariants(log)
            except StorageFault:
                continue

    def check_durable(self) -> None:
        """I2 at any moment, also in the middle of a sync: no log claims more than the platter has.

        What lies below the recovery point is what the next start does not look at.
        """
        platter = self.disk.durable_files()
        for log in self.logs():
            if log.local.pending_swap is not None:
                continue  # names are on their way, whole in every state (test_segment_swap)
            point = log.local.recovery_point
            for segment in log.segments.values:
                path = segment.log_file.path
                if segment.base_offset >= point or path not in platter:
                    assert segment.base_offset >= point, f"{path} has no durable name"
                    continue
                position, shown = 0, self.disk.shown(path)
                offset = segment.base_offset
                while offset < point and position < len(shown):  # behind it may be lost pages
                    header = read_header(shown, position)
                    if header.next_offset > point:
                        break
                    position, offset = position + header.size_bytes, header.next_offset
                assert platter[path][:position] == shown[:position], f"{path} below {point}"

    def check_restart(self, *, is_kill: bool) -> None:
        """Right after ``start``: every promise of the lives before."""
        life = self.life
        assert len(life.manager.logs.online_units) == len(self.config.log_dirs)
        paths = [f"{path}/{REGISTRY_FILE}" for path in self.config.log_dirs]
        files = {self.disk.read_file(path) for path in paths if self.disk.exists(path)}
        assert len(files) <= 1, "the registries of the directories differ"
        names = set(life.operations.topic_names())
        for name, topic in self.topics.items():
            if topic.is_certain:
                assert (name in names) == topic.exists, f"topic {name}"
            topic.exists = name in names
            if not topic.exists:
                topic.partitions.clear()
            topic.is_certain = True
        assert names == {name for name, topic in self.topics.items() if topic.exists}
        for name in sorted(names):
            text = life.operations.topics.describe(name).overrides.get("flush.messages")
            self.topics[name].settle_changes(
                life.operations.partition_count(name), None if text is None else int(text)
            )
        self._check_directories()
        for name in sorted(names):
            for number in range(self.topics[name].partition_count):
                try:
                    self._check_partition(name, number, is_kill=is_kill)
                except AssertionError as error:
                    error.add_note(f"in {name}-{number}, kill: {is_kill}")
                    raise

    def _check_directories(self) -> None:
        """Every partition directory is served, once; the rest waits for its deletion."""
        for path in self.config.log_dirs:
            for entry in self.disk.list_dir_stats(path):
                if not entry.is_dir:
                    continue
                parsed = parse_directory_name(entry.name)
                where = f"{path}/{entry.name}"
                if parsed.state.name == "LIVE":
                    partition = parsed.topic_partition
                    log = self.life.manager.logs.log_of(partition.topic, partition.partition)
                    assert log.directory == where, "a partition in two places"
                else:  # stray: half made when its disk died, before it got its id
                    assert parsed.state.name in ("DELETE", "STRAY", "FUTURE"), where

    def _check_partition(self, name: str, number: int, *, is_kill: bool) -> None:
        promises = self.topics[name].partition(number)
        log = self.life.operations.partition_log(name, number)
        limit = self.topics[name].flush_messages
        assert log.config.flush_messages == (INT64_MAX if limit is None else limit)
        check_invariants(log)
        check_producers(log)
        found = contents(log)
        promises.settle(found, log.log_start_offset, log.log_end_offset, is_kill=is_kill)
        twin = NaiveProducers.of([batch[2] for batch in found])
        for key in [key for key in self.sequences if key[:2] == (name, number)]:
            producer = twin.producers.get(key[2])
            entry = log.producers.entries.get(key[2])
            if producer is None and entry is None:
                # Forgotten below the log start, until a recovery of the whole segment remembers it,
                # as Kafka's does: a client never uses a sequence twice within an epoch.
                continue
            last = -1 if producer is None else producer.last_sequence
            if entry is not None:
                last = entry.last_sequence
            self.sequences[key] = last + 1

    def copy_on(self, disk: SimFilesystem) -> DaemonRun:
        """The same promises over another disk, before the next life."""
        copy = DaemonRun(disk, seed=self.seed, dirs=self.config.log_dirs, racy=self.racy)
        copy.topics = deepcopy(self.topics)
        copy.sequences = dict(self.sequences)
        copy.batch_count, copy.lives = self.batch_count, self.lives
        return copy
