"""Retention passes over stopped log directories: ``python -m tests.bench.retention_once DIR...``.

Starts a manager without HTTP on the directories, runs the pass of ``kafka-log-retention`` several
times and prints JSON: milliseconds of the first pass, which asks segments for their timestamps for
the first time, and of each later one; CPU milliseconds of the later ones; logs and segments.
"""

from __future__ import annotations

import json
import sys
import time

from kafkalog import kernels
from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.log_manager import LogManager
from kafkalog.broker.runtime import Runtime
from kafkalog.env.clock import SystemClock
from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.env.system_scheduler import SystemScheduler
from kafkalog.env.system_threads import SystemThreads
from kafkalog.observe.logging import configure_logging
from kafkalog.observe.metrics import Metrics
from tests.sim.sim_manager import SimRules, Sink

_PASSES = 9


def main() -> None:
    configure_logging(sys.stderr, log_format="json", level="warning")
    kernels.warm_up(None)
    threads, clock = SystemThreads(_failed), SystemClock()
    scheduler = SystemScheduler(clock, threads, 2, _failed)
    config = BrokerConfig(log_dirs=tuple(sys.argv[1:]))
    runtime = Runtime(
        SystemFilesystem(), clock, scheduler, SystemRandom(), threads, Metrics(), config
    )
    manager = LogManager(SimRules(), runtime, Sink(), lambda: None)
    scheduler.startup()
    manager.startup()
    passes, cpu = [], []
    for _ in range(_PASSES):
        begun, begun_cpu = time.perf_counter(), time.thread_time()
        assert manager.retention.run_once() == 0, "there was something to delete"
        passes.append((time.perf_counter() - begun) * 1000)
        cpu.append((time.thread_time() - begun_cpu) * 1000)
    logs = manager.logs.table.logs()
    found = {
        "first_ms": passes[0],
        "later_ms": sorted(passes[1:]),
        "later_cpu_ms": sorted(cpu[1:]),
        "logs": len(logs),
        "segments": sum(len(log.segments) for log in logs),
    }
    manager.shutdown()
    scheduler.shutdown()
    print(json.dumps(found))


def _failed(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error


if __name__ == "__main__":
    main()
