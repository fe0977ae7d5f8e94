"""kafkalog's side of a benchmark: a real daemon, started with a stop-watch, profiled when asked."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from typing import TYPE_CHECKING, Self

from tests.bench.kafka_side import wait_until_gone
from tests.bench.load_client import Load, LoadResult, run_load
from tests.integration.daemon import Daemon

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_START_SECONDS = 300.0


class BenchDaemon(Daemon):
    """A daemon whose starts are timed. ``profile``: where to write a profile when it stops."""

    def __init__(self, root: Path, *, profile: Path | None = None, **overrides: str) -> None:
        super().__init__(root, log_dirs=1, environment=None, **overrides)
        self.profile = profile
        self._is_under_load = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def command(self) -> list[str]:
        """The daemon's command line, with the sampler around it when a profile is wanted."""
        command = super().command()
        if self.profile is None:
            return command
        at = command.index("kafkalog")
        launcher = [sys.executable, "-m", "tests.bench.sampled_daemon", str(self.profile)]
        return [*launcher, *command[at + 1 :]]

    def start_timed(self) -> float:
        """Start; seconds from the process's start to the first 200 of /readyz."""
        started = time.perf_counter()
        self.start(wait=False)
        assert self.process is not None
        while time.perf_counter() - started < _START_SECONDS:
            try:
                if self.request("GET", "/readyz").status == 200:
                    return time.perf_counter() - started
            except OSError:
                if self.process.poll() is not None:
                    break
            time.sleep(0.01)
        raise AssertionError(f"the daemon did not start: {self.log_tail()}")

    def load(self, requests: Sequence[bytes], load: Load) -> LoadResult:
        """Run the load client over HTTP."""
        if self.profile is not None and not self._is_under_load:
            os.kill(self.pid, signal.SIGUSR2)  # the sampler forgets the start
        self._is_under_load = True
        return run_load(self, requests, load)

    def perf(self, command: str, *arguments: str) -> list[str]:
        """The command line of ``kafkalog perf`` against this daemon."""
        address = ("--url", f"http://127.0.0.1:{self.port}")
        return [sys.executable, "-m", "kafkalog", "perf", command, *arguments, *address]

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """As Kafka's side does: without retention, for records have fixed timestamps."""
        super().create_topic(name, partitions, **{"retention_ms": "-1", **configs})

    def delete_topic(self, name: str) -> None:
        """Delete it and wait until its files are gone."""
        assert self.request("DELETE", f"{self.cluster()}/topics/{name}").status == 204
        wait_until_gone(self.log_dirs[0], name)

    def walk(self, path: str, end_offset: int) -> list[int]:
        """Where the pages of ``path`` (it ends in ``offset=``) begin, from 0 to end_offset."""
        offsets = [0]
        while True:
            answer = self.request("GET", f"{path}{offsets[-1]}")
            assert answer.status == 200, answer.body[:500]
            following = int(answer.headers["Kafka-Next-Offset"])
            assert following > offsets[-1]
            if following >= end_offset:
                return offsets
            offsets.append(following)


def raise_open_files() -> int:
    """Let children open as many files as this user may; the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 30


def sync_disks() -> None:
    """Write back what the other side left dirty, so that no round pays for the one before."""
    os.sync()
