"""A whole manager on the twins: one disk, one clock, one seed; its sink completes at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.log_manager import LogManager
from kafkalog.broker.operations import Operations
from kafkalog.broker.runtime import Runtime
from kafkalog.broker.values import Acks
from kafkalog.cleaner.log_cleaner import make_cleaner
from kafkalog.errors import KafkalogError
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.log.log_config import LogConfig
from kafkalog.log.validator import validate
from kafkalog.log.values import AppendOrigin
from kafkalog.observe.metrics import Metrics
from kafkalog.settings import load_settings
from kafkalog.settings.dynamic_configs import (
    broker_with_dynamic,
    describe_topic_config,
    parse_dynamic,
    parse_topic_config,
    plain_texts,
    with_dynamic,
)
from tests.sim.sim_clock import WALL_MS, SimClock
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_random import SimRandom
from tests.sim.sim_scheduler import SimScheduler
from tests.sim.sim_threads import SimThreads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.broker.broker_config import LogDirConfig
    from kafkalog.broker.directory.commands import Command
    from kafkalog.broker.values import ConfigEntry
    from kafkalog.cleaner.config import LogCleanerConfig
    from kafkalog.cleaner.log_cleaner import CleanerMaker
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.unified_log import UnifiedLog
    from kafkalog.log.values import ValidatedRecords

DIRS = ("/data/a", "/data/b")


def small_indexes(defaults: LogConfig) -> LogConfig:
    """Kafka's default reserves 20 MB a partition, which a simulated disk keeps in memory."""
    is_default = defaults.segment_index_bytes == LogConfig().segment_index_bytes
    return replace(defaults, segment_index_bytes=65_536) if is_default else defaults


class SimRules:
    """ConfigRules over any defaults, which no key has to be able to say."""

    def __init__(
        self, defaults: LogConfig | None = None, broker: BrokerConfig | None = None
    ) -> None:
        self.defaults = defaults if defaults is not None else small_indexes(LogConfig())
        self.broker = broker if broker is not None else BrokerConfig()

    def plain_texts(self, configs: Mapping[str, str]) -> dict[str, str]:
        return plain_texts(configs)

    def topic_config(self, overrides: Mapping[str, str], dynamic: Mapping[str, str]) -> LogConfig:
        return parse_topic_config(overrides, self.topic_defaults(dynamic))

    def topic_defaults(self, dynamic: Mapping[str, str]) -> LogConfig:
        return with_dynamic(self.defaults, parse_dynamic(dynamic))

    def cleaner_config(self, dynamic: Mapping[str, str]) -> LogCleanerConfig:
        return broker_with_dynamic(self.broker, parse_dynamic(dynamic)).cleaner

    def log_dir_config(self, dynamic: Mapping[str, str]) -> LogDirConfig:
        return broker_with_dynamic(self.broker, parse_dynamic(dynamic)).log_dir_config

    def describe_topic_config(
        self, overrides: Mapping[str, str], dynamic: Mapping[str, str]
    ) -> Sequence[ConfigEntry]:
        self.topic_config(overrides, dynamic)
        return describe_topic_config(overrides, {}, parse_dynamic(dynamic))

    def describe_broker_config(self, dynamic: Mapping[str, str]) -> Sequence[ConfigEntry]:
        return load_settings(None, {}, {}).describe_broker_config(dynamic)


class Sink:
    """Completes commands on the spot and remembers what it saw."""

    def __init__(self) -> None:
        self.finished: list[Command] = []
        self.deliveries = 0
        self.advanced: set[TopicPartition] = set()

    def deliver(self, finished: list[Command], advanced: frozenset[TopicPartition]) -> None:
        self.deliveries += 1
        self.finished += finished
        self.advanced |= advanced
        for command in finished:
            command.complete()


class SimManager:
    """One run of the daemon without HTTP. ``stop`` or ``disk.kill()`` ends it."""

    def __init__(
        self,
        disk: SimFilesystem | None = None,
        *,
        seed: int = 0,
        config: BrokerConfig | None = None,
        topic_defaults: LogConfig | None = None,
        make_cleaner: CleanerMaker = make_cleaner,
        wall_ms: int = WALL_MS,
    ) -> None:
        """``topic_defaults``: what topic overrides lie over, else the config's, indexes small."""
        self.clock = SimClock(wall_ms)
        self.disk = disk if disk is not None else SimFilesystem()
        self.disk.clock = self.clock
        self.threads = SimThreads(self.clock, seed)
        self.task_faults: list[tuple[str, KafkalogError]] = []
        self.scheduler = SimScheduler(self.clock, self._task_failed)
        self.metrics = Metrics()
        self.sink = Sink()
        self.all_dirs_died = False
        self.config = config if config is not None else BrokerConfig(log_dirs=DIRS)
        runtime = Runtime(
            self.disk,
            self.clock,
            self.scheduler,
            SimRandom(seed),
            self.threads,
            self.metrics,
            self.config,
        )
        self.manager = LogManager(
            SimRules(topic_defaults or small_indexes(self.config.topic_defaults), self.config),
            runtime,
            self.sink,
            self._note_death,
            make_cleaner,
        )
        self.operations = Operations(self.manager)

    def _task_failed(self, name: str, error: Exception) -> None:
        """A fault of the disk is remembered; a defect of ours reaches the test."""
        if not isinstance(error, KafkalogError):
            raise error
        self.task_faults.append((name, error))

    def _note_death(self) -> None:
        self.all_dirs_died = True

    def start(self) -> SimManager:
        self.scheduler.startup()
        self.manager.startup()
        return self

    def with_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> SimManager:
        """Itself, with a new topic."""
        self.operations.topics.create(name, partitions, configs or {})
        return self

    def stop(self) -> SimFilesystem:
        """Orderly end; the disk for the next run."""
        self.manager.shutdown()
        self.scheduler.shutdown()
        self.threads.kill_all()
        return self.disk.kill()

    def kill(self) -> SimFilesystem:
        self.threads.kill_all()
        return self.disk.kill()

    def produce(
        self, topic: str, batch: bytes, acks: Acks = Acks.ALL, partition: int = 0
    ) -> Command:
        """Append and run until answered."""
        done: list[Command] = []
        log = self.operations.partition_log(topic, partition)
        records = records_of(batch, log, self.clock.wall_ms())
        self.operations.submit_produce(log, records, acks, on_done=done.append)
        self.threads.run_until(lambda: bool(done))
        return done[0]

    def delete_records(self, topic: str, offset: int, partition: int = 0) -> Command:
        """Move the log start and run until answered."""
        done: list[Command] = []
        self.operations.submit_delete_records(topic, partition, offset, done.append)
        self.threads.run_until(lambda: bool(done))
        return done[0]


def batch_of(*values: str) -> bytes:
    return build_batch(RecordColumns.of([None] * len(values), list(values), 1_700_000_000_000))


def records_of(batch: bytes, log: UnifiedLog, now_ms: int = WALL_MS) -> ValidatedRecords:
    """A client's batch, validated for the log."""
    return validate(batch, log.config, now_ms, AppendOrigin.CLIENT, max_decompressed_bytes=1 << 20)
