"""Load one partition directory as after a crash: ``python -m tests.bench.load_once DIRECTORY``.

Prints JSON: milliseconds of the load alone and the log end offset. It is what Kafka's broker prints
as "Completed load of ...": no interpreter start, no imports, no other logs; the kernels are loaded
from their cache before, as the daemon does.
"""

from __future__ import annotations

import json
import sys
import time

from kafkalog import kernels
from kafkalog.env.clock import SystemClock
from kafkalog.env.random import SystemRandom
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.env.system_scheduler import SystemScheduler
from kafkalog.env.system_threads import SystemThreads
from kafkalog.log.environment import LogEnvironment
from kafkalog.log.log_config import LogConfig
from kafkalog.log.recovery.log_loader import load_log


def main() -> None:
    """Load, print, close without a clean-shutdown mark."""
    kernels.warm_up(None)
    clock = SystemClock()
    threads = SystemThreads(_failed)
    scheduler = SystemScheduler(clock, threads, 1, _failed)
    environment = LogEnvironment.create(
        SystemFilesystem(), clock, scheduler, SystemRandom(), threads
    )
    started = time.perf_counter()
    log = load_log(sys.argv[1], LogConfig(), environment, clean=False)
    milliseconds = (time.perf_counter() - started) * 1000
    print(json.dumps({"milliseconds": milliseconds, "end_offset": log.log_end_offset}))
    log.close()


def _failed(name: str, error: BaseException) -> None:
    raise AssertionError(name) from error


if __name__ == "__main__":
    main()
