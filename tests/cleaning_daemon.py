"""A simulated daemon with compacted topics, for tests of the cleaner's threads and states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.cleaner.stats import CleaningRun, CleanRequest
from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.log_config import LogConfig
from tests.sim.sim_cleaner import SimCleaners
from tests.sim.sim_manager import DIRS, SimManager

if TYPE_CHECKING:
    from kafkalog.log.unified_log import UnifiedLog
    from tests.sim.sim_filesystem import SimFilesystem

NOW_MS = 1_700_000_000_000
COMPACTED = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    internal_segment_bytes=300,
    segment_index_bytes=240,
    min_cleanable_dirty_ratio=0.0,
)
BOTH = frozenset({"compact", "delete"})


def keyed_batch(*pairs: tuple[str, str | None], timestamp_ms: int = NOW_MS) -> bytes:
    """One batch of records with keys; a value of None deletes."""
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    return build_batch(RecordColumns.of(keys, values, timestamp_ms))


class CleaningDaemon:
    """One life of a daemon whose cleaners are simulated ones."""

    def __init__(
        self,
        disk: SimFilesystem | None = None,
        *,
        seed: int = 0,
        threads: int = 1,
        topic_defaults: LogConfig = COMPACTED,
        bytes_per_second: float = 1e300,
    ) -> None:
        self.cleaners = SimCleaners()
        self.sim = SimManager(
            disk,
            seed=seed,
            config=BrokerConfig(
                log_dirs=DIRS,
                log_cleaner_threads=threads,
                log_cleaner_io_max_bytes_per_second=bytes_per_second,
            ),
            topic_defaults=topic_defaults,
            make_cleaner=self.cleaners.make,
        )
        self.states = self.sim.manager.cleaning.states
        self.sim.start()
        self.sim.threads.run_until_idle()  # the first turns, which find nothing, are over

    def topic(self, name: str = "t", batches: int = 12, **configs: str) -> UnifiedLog:
        """A new topic of one partition with so many batches of one record; its log."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self.sim.operations.topics.create(name, 1, named)
        self.fill(name, batches)
        return self.log(name)

    def fill(self, name: str, batches: int) -> None:
        """More of them, five keys in turn."""
        for number in range(batches):
            self.sim.produce(name, keyed_batch((f"k{number % 5}", "v" * 40)))

    def log(self, name: str = "t") -> UnifiedLog:
        return self.sim.operations.partition_log(name, 0)

    def turn(self) -> None:
        """Let every thread have at least one turn."""
        self.sim.clock.advance_ms(self.sim.config.log_cleaner_backoff_ms + 1)

    def order(self, name: str = "t", *, is_dry: bool = False) -> list[CleaningRun]:
        """Ask for a clean; what became of it is in the list when threads have run."""
        done: list[CleaningRun] = []
        request = CleanRequest(self.log(name), is_dry, done.append)
        self.sim.manager.cleaning.cleaner.submit(request)
        return done

    def run_into_a_clean(self, name: str = "t") -> list[CleaningRun]:
        """Let threads run until one is in the middle of a clean of the topic."""
        self.cleaners.on_chunk = lambda _: self.sim.threads.switch_point()
        done = self.order(name)
        self.sim.threads.run_until(lambda: TopicPartition(name, 0) in self.cleaners.at_work)
        return done

    def checkpoint(self, name: str = "t") -> int | None:
        """Of a topic, as its directory's file holds it."""
        log_dir = self.sim.manager.logs.unit_of(self.log(name)).log_dir
        return log_dir.read_checkpoint("cleaner-offset-checkpoint").get(TopicPartition(name, 0))
