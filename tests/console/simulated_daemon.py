"""A daemon on a simulated disk and clock, after an hour of traffic, as pages show it.

orders, payments, clicks and telemetry have appends that rise and fall, and are on the disk;
profiles is compacted. The disks of one that ``is_full`` have no room: what an operator sees then.
"""

from __future__ import annotations

import asyncio
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.observe.history import ROWS
from kafkalog.server.console.threads import ConsoleThreads
from kafkalog.settings import load_settings
from tests.cleaning_daemon import keyed_batch
from tests.made_api import api_over, listening
from tests.sim.sim_manager import DIRS, SimManager

if TYPE_CHECKING:
    from collections.abc import Iterator

_BEGIN_MS = 1_795_766_400_000  # 2026-11-27 08:00 UTC
_PERIOD_MS = 10_000
_DISK_BYTES, _FOREIGN_BYTES = 4_000_000_000, 1_300_000_000
_TOPICS = ("orders", "payments.authorized", "clicks", "telemetry.position")


class SimulatedDaemon(NamedTuple):
    """What a Window asks of a daemon."""

    port: int


@contextmanager
def simulated_daemon(*, is_full: bool = False) -> Iterator[SimulatedDaemon]:
    """See the module."""
    with serving(_after_an_hour(is_full=is_full)) as daemon:
        yield daemon


@contextmanager
def serving(sim: SimManager) -> Iterator[SimulatedDaemon]:
    """It serves on a thread with a loop of its own."""
    port = list[int]()
    is_up, loop, end = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        pool, console = ThreadPoolExecutor(2), ConsoleThreads()
        settings = load_settings(None, {}, {"http.port": "0"})
        api = api_over(sim, settings, pool, console_threads=console)
        async with listening(api) as listeners:
            port.append(listeners[0].port)
            is_up.set()
            await end.wait()
        pool.shutdown()
        console.shutdown()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert is_up.wait(60)
    try:
        yield SimulatedDaemon(port[0])
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(60)
        loop.close()


def _after_an_hour(*, is_full: bool) -> SimManager:
    sim = SimManager(config=BrokerConfig(log_dirs=DIRS), wall_ms=_BEGIN_MS).start()
    sim.disk.capacity_bytes, sim.disk.foreign_bytes = _DISK_BYTES, _FOREIGN_BYTES
    sim.operations.topics.create("profiles", 2, {"cleanup.policy": "compact"})
    for name in _TOPICS:
        sim.operations.topics.create(name, 3)
    for number, name in enumerate((*_TOPICS, "profiles")):
        for _ in range(3 + number):
            batch = keyed_batch(("key", "value" * 20), timestamp_ms=sim.clock.wall_ms())
            sim.produce(name, batch)
    traffic, metrics = sim.metrics.traffic, sim.metrics
    for step in range(ROWS):
        pace = 1 + 0.5 * math.sin(step / 40) + 0.1 * math.sin(step * 1.7)
        for number, name in enumerate(_TOPICS):
            count = int(400 * pace / (number + 1))
            record = ("key", "v" * 90)
            batch = keyed_batch(*[record] * count, timestamp_ms=sim.clock.wall_ms())
            sim.produce(name, batch, partition=step % 3)
            traffic.observe_append(name, count, len(batch), count)
            traffic.observe_reads(name, count * (145 if step < 200 else 75), count * 2 // 3)
        for part in range(50):
            metrics.append_seconds.labels("ok").observe(0.001 + 0.002 * pace * part / 50)
            metrics.fetch_seconds.labels("ok").observe(0.0006)
        sim.disk.foreign_bytes += 300_000
        sim.clock.advance_ms(_PERIOD_MS)
    if is_full:
        sim.disk.capacity_bytes = 100_000
        sim.clock.advance_ms(_PERIOD_MS)
    return sim
