"""What every benchmark gets: sizes, directories, both servers, and the alternation of rounds."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tests.bench.bridge_side import HOME, BenchBridge
from tests.bench.daemon_side import BenchDaemon, sync_disks
from tests.bench.kafka_side import BenchBroker
from tests.bench.results import Round

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.kafka_side import Jars
    from tests.bench.results import Sample

Value = TypeVar("Value")


@dataclass
class Bench:
    """One run of the harness.

    work       is on the file system to be measured, and may be filled
    connector  jars of Spark's own Kafka source and sink (`Jars.connector`), None without
    """

    work: Path
    rounds: int
    quick: bool
    jars: Jars | None
    connector: str | None = None
    profiles: Path | None = None
    open_files: int = 0
    name: str = ""

    def size(self, full: Value, quick: Value) -> Value:
        return quick if self.quick else full

    def directory(self, name: str) -> Path:
        """A directory of the benchmark under way; gone when it ends."""
        path = self.work / self.name / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def clear(self) -> None:
        shutil.rmtree(self.work / self.name, ignore_errors=True)

    def daemon(self, name: str = "kafkalog", **overrides: str) -> BenchDaemon:
        """A daemon that does not run yet, with its profile under the benchmark's name."""
        profile = None
        if self.profiles is not None:
            profile = self.profiles / f"{self.name}.txt"
        return BenchDaemon(self.directory(name), profile=profile, **overrides)

    @contextmanager
    def running_daemon(self, **overrides: str) -> Iterator[BenchDaemon]:
        with self.daemon(**overrides) as daemon:
            yield daemon

    @contextmanager
    def running_broker(self, extra: str = "") -> Iterator[BenchBroker | None]:
        """A broker that is ready; None in a run without Kafka."""
        if self.jars is None:
            yield None
            return
        with BenchBroker(self.jars, self.directory("kafka"), extra) as broker:
            yield broker

    @contextmanager
    def running_bridge(self, extra: str = "") -> Iterator[BenchBridge | None]:
        """Strimzi's Bridge before a broker; None, with a word, where no built one is named."""
        if self.jars is None:
            yield None
        elif HOME not in os.environ:
            print(f"bench: {self.name} without the Bridge: {HOME} names none", flush=True)
            yield None
        else:
            with (
                BenchBroker(self.jars, self.directory("kafka"), extra) as broker,
                BenchBridge(Path(os.environ[HOME]), broker) as bridge,
            ):
                yield bridge

    def alternate(
        self,
        kafkalog: Callable[[], Sample],
        kafka: Callable[[], Sample] | None,
        *,
        warm_ups: int = 1,
    ) -> list[Round]:
        """Warm-ups of each that are not counted, then the rounds; every other one Kafka first."""
        for _ in range(warm_ups):
            kafkalog()
            if kafka is not None:
                kafka()
        rounds = []
        for number in range(self.rounds):
            if kafka is None:
                sync_disks()
                rounds.append(Round(kafkalog()))
                continue
            order = (kafkalog, kafka) if number % 2 == 0 else (kafka, kafkalog)
            samples = []
            for side in order:
                sync_disks()
                samples.append(side())
            ours, theirs = samples if number % 2 == 0 else reversed(samples)
            rounds.append(Round(ours, theirs))
        return rounds
