"""Runtime: what every part is given: disk, clock, threads, metrics, the configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalog.broker.broker_config import BrokerConfig
    from kafkalog.env.clock import Clock
    from kafkalog.env.filesystem import Filesystem
    from kafkalog.env.random import Random
    from kafkalog.env.scheduler import Scheduler
    from kafkalog.env.threads import Threads
    from kafkalog.observe.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Runtime:
    """One of each. The composition root starts and stops the scheduler."""

    filesystem: Filesystem
    clock: Clock
    scheduler: Scheduler
    random: Random
    threads: Threads
    metrics: Metrics
    config: BrokerConfig
