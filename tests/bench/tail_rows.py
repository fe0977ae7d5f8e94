"""Tails: how long a record takes from its append to everybody who follows the log.

A thousand event streams of one partition, and an append now and then from the same process: each
record is on its way to all of them at once.
"""

from __future__ import annotations

import select
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.format.records.batch_builder import RecordColumns, build_batch
from tests.bench.load_client import build_request
from tests.bench.machine_use import cpu_seconds, own_cpu_seconds
from tests.bench.results import Goal, Result, Sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.bench import Bench
    from tests.bench.daemon_side import BenchDaemon

_BATCHES = "application/vnd.kafkalog.record-batches"
_PAUSE_SECONDS = 0.25
_LATE_SECONDS = 10.0


class _Sizes(NamedTuple):
    """How many follow, and how many records they get in a round."""

    streams: int
    appends: int


def tail_events(bench: Bench) -> Result:
    """From the append's first byte sent to the record's arrival at each of the streams."""
    sizes = bench.size(_Sizes(1000, 60), _Sizes(200, 10))
    with bench.running_daemon(http_max_streams="2000") as daemon:
        daemon.create_topic("tail")
        with _Followers(daemon, sizes.streams) as followers:
            rounds = bench.alternate(lambda: _round(daemon, followers, sizes.appends), None)
    return Result(
        name=bench.name,
        what=f"Append to arrival at {sizes.streams:,} event streams, p99",
        unit="ms",
        durability="acks=1: page cache",
        goal=Goal("<= 50 ms", at_most=50),
        rounds=rounds,
        client="one reader of all streams",
        lower_is_better=True,
        notes=(
            f"a record of 100 bytes every {_PAUSE_SECONDS * 1000:.0f} ms, {sizes.appends} a round;"
            " all arrivals counted",
            "one client process on the same two cores appends and reads all streams",
        ),
    )


class _Followers:
    """Open streams, each of which has heard that there is nothing yet."""

    def __init__(self, daemon: BenchDaemon, count: int) -> None:
        self._sockets: dict[int, socket.socket] = {}
        self._poll = select.epoll()
        path = "/v1/topics/tail/partitions/0/records?from=latest&value_format=text&fields=value"
        request = build_request("GET", path, accept="text/event-stream")
        for _ in range(count):
            connected = socket.create_connection(("127.0.0.1", daemon.port))
            connected.sendall(request)
            self._sockets[connected.fileno()] = connected
            self._poll.register(connected, select.EPOLLIN)
        self.gather(b'"up_to_date":true', lambda _: None)

    def __enter__(self) -> _Followers:
        return self

    def __exit__(self, *exc: object) -> None:
        self._poll.close()
        for connected in self._sockets.values():
            connected.close()

    def gather(self, marker: bytes, note: Callable[[float], None]) -> None:
        """Read until each stream has given the marker; ``note`` gets the moment of each."""
        missing = set(self._sockets)
        deadline = time.perf_counter() + _LATE_SECONDS
        while missing:
            assert time.perf_counter() < deadline, f"{len(missing)} streams have not given it"
            for number, _ in self._poll.poll(1):
                data = self._sockets[number].recv(1 << 16)
                assert data, "a stream ended"
                if marker in data:
                    note(time.perf_counter())
                    missing.discard(number)


def _round(daemon: BenchDaemon, followers: _Followers, appends: int) -> Sample:
    latencies: list[float] = []
    server_before, client_before = cpu_seconds(daemon.pid), own_cpu_seconds()
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", daemon.port)) as producer:
        for number in range(appends):
            value = b"record %09d " % number
            batch = build_batch(RecordColumns.of([None], [value.ljust(100, b".")], 1))
            path = "/v1/topics/tail/partitions/0/batches?acks=1"
            request = build_request("POST", path, batch, _BATCHES)
            sent = time.perf_counter()
            producer.sendall(request)
            followers.gather(value, lambda at: latencies.append((at - sent) * 1000))  # noqa: B023 - called before the next turn
            assert b" 200 " in producer.recv(1 << 16)
            time.sleep(_PAUSE_SECONDS)
    seconds = time.perf_counter() - began
    latencies.sort()
    return Sample(
        latencies[len(latencies) * 99 // 100],
        (own_cpu_seconds() - client_before) / seconds,
        (cpu_seconds(daemon.pid) - server_before) / seconds,
        {"p50_ms": latencies[len(latencies) // 2], "max_ms": latencies[-1]},
    )
