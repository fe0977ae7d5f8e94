"""Goal: no order of requests, threads, faults, power cuts and restarts breaks a promise.
Method: a seed decides everything; a failure names the seed, and `make sim SEED=n` plays it again.
"""

from __future__ import annotations

import errno
import os
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.values import Acks
from kafkalog.errors import LogDirOffline
from tests.sim.sim_crash import ALL_MODES
from tests.sim.sim_faults import Effect, Fault, SimulatedCrash
from tests.simulation.daemon_run import DELETION_MS, DIRS, DaemonRun, new_disk

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.sim_crash import CrashMode

QUICK_SEEDS = range(1, 151)
STEPS = 45
CLIENTS = (-1, 1, 2)
COMPACTED_NAMES = "kl"  # topics of these names are compacted
RETENTION_CHECK_MS = 5_000
LIMITED = {"c": 900, "d": 0}  # bytes that the retention task leaves
FAULTS: list[tuple[Effect, int, frozenset[str]]] = [
    (Effect.RAISE, errno.EIO, frozenset({"write"})),
    (Effect.RAISE, errno.EIO, frozenset({"datasync", "sync_dir"})),
    (Effect.LOSE_SYNC, errno.EIO, frozenset({"datasync"})),
    (Effect.RAISE, errno.EIO, frozenset({"read", "open"})),
    (Effect.RAISE, errno.ENOSPC, frozenset({"write", "create"})),
    (Effect.RAISE, errno.EMFILE, frozenset({"open", "create"})),
    (Effect.SHORT_WRITE, errno.ENOSPC, frozenset({"write"})),
    (Effect.SHORT_WRITE, errno.EIO, frozenset({"write"})),
]


class Simulation:
    """One seed. ``run`` ends with every promise checked twice."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = DaemonRun(new_disk(DIRS[: 1 + seed % 3]), seed=seed, dirs=DIRS[: 1 + seed % 3])
        self.world.config = replace(
            self.world.config,
            log_initial_task_delay_ms=RETENTION_CHECK_MS,
            log_retention_check_interval_ms=RETENTION_CHECK_MS,
        )
        self.has_lost_pages = False  # a sync failed in this life
        self.actions: list[tuple[int, Callable[[], None]]] = [
            (30, self.produce),
            (10, self.repeat),
            (12, self.let_run),
            (10, self.fetch),
            (6, self.list_offsets),
            (7, self.delete_records),
            (5, self.create_topic),
            (2, self.delete_topic),
            (3, self.grow_topic),
            (3, self.alter_topic),
            (6, self.move_partition),
            (6, self.pass_time),
            (6, self.plan_stop),
            (4, self.plan_fault),
            (3, self.stop_and_start),
        ]

    def run(self) -> DaemonRun:
        """All steps, an orderly or a violent end, and two more starts."""
        world = self.world
        self._guarded(world.start)
        weights = [weight for weight, _ in self.actions]
        for _ in range(STEPS):
            _, action = self.chance.choices(self.actions, weights)[0]
            self._guarded(action)
            if world.life.all_dirs_died or not world.life.manager.logs.online_units:
                self._die(self._mode())
            elif self.chance.random() < 0.2:
                self._guarded(world.check_life)
        if self.chance.random() < 0.5:
            self._guarded(world.stop)
        self._die(self.chance.choice(ALL_MODES))
        self._die(self.chance.choice(ALL_MODES))
        world.life.threads.kill_all()
        return world

    # ---- ends of lives

    def _guarded(self, action: Callable[[], None]) -> None:
        """Do it; when the disk stops on the way that life is over and the next one begins."""
        try:
            action()
        except (LogDirOffline, SimulatedCrash):
            if not self.world.disk.faults.is_stopped and self.world.life.manager.logs.online_units:
                raise
            self._die(self._mode())

    def _mode(self) -> CrashMode | None:
        """None: a kill."""
        return None if self.chance.random() < 0.4 else self.chance.choice(ALL_MODES)

    def _die(self, mode: CrashMode | None) -> None:
        """End the life, then start until a start is not cut off, then check every promise.

        What the kernel forgot to write is gone after a kill too.
        """
        is_kill = mode is None and not self.has_lost_pages
        world = self.world
        while True:
            if mode is None:
                world.kill()
            else:
                world.crash(mode, self.chance.randrange(1000))
            self.has_lost_pages = False
            if self.chance.random() < 0.3:
                self.plan_stop()
            try:
                world.start()
                break
            except SimulatedCrash:
                mode = self._mode()
                is_kill = is_kill and mode is None
        world.disk.faults.clear()
        world.check_restart(is_kill=is_kill)

    # ---- actions

    def plan_stop(self) -> None:
        """The disk stops at one of the next calls."""
        disk = self.world.disk
        calls = len(disk.operations) + self.chance.randrange(80)
        disk.stop_at(calls, is_partial=self.chance.random() < 0.5)

    def plan_fault(self) -> None:
        """One of the next calls of a kind fails in one directory, or all from then on."""
        effect, error, kinds = self.chance.choice(FAULTS)
        self.has_lost_pages = self.has_lost_pages or effect is Effect.LOSE_SYNC
        self.world.disk.faults.add(
            Fault(
                effect,
                error,
                kinds,
                self.chance.choice(self.world.config.log_dirs),
                nth=self.chance.randrange(1, 15),
                times=self.chance.choice((1, 1, 2, 10**9)),
            )
        )

    def stop_and_start(self) -> None:
        """An orderly restart; all directories come back when none is broken."""
        self.world.stop()
        is_kill = not self.has_lost_pages and self.chance.random() >= 0.3
        if is_kill or self.chance.random() < 0.5:
            self.world.disk.faults.disarm()
        else:
            self.world.disk = self.world.disk.crash(self.chance.choice(ALL_MODES), 1)
        self.has_lost_pages = not is_kill  # also when this start is cut off
        self.world.start()
        self.world.disk.faults.disarm()
        self.world.check_restart(is_kill=is_kill)
        self.has_lost_pages = False

    def _partition(self) -> tuple[str, int] | None:
        names = sorted(name for name, topic in self.world.topics.items() if topic.exists)
        if not names:
            return None
        name = self.chance.choice(names)
        return name, self.chance.randrange(self.world.topics[name].partition_count)

    def create_topic(self) -> None:
        name = self.chance.choice("abcd" + COMPACTED_NAMES)
        topic = self.world.topics.get(name)
        if topic is None or not topic.exists:
            count, limit = self.chance.randrange(1, 4), LIMITED.get(name)
            is_compacted = name in COMPACTED_NAMES
            self.world.create_topic(name, count, retention_bytes=limit, compacted=is_compacted)

    def delete_topic(self) -> None:
        where = self._partition()
        if where is not None:
            self.world.delete_topic(where[0])

    def grow_topic(self) -> None:
        where = self._partition()
        if where is not None:
            count = self.world.topics[where[0]].partition_count
            self.world.grow_topic(where[0], count + self.chance.randrange(1, 4))

    def alter_topic(self) -> None:
        where = self._partition()
        if where is not None:
            self.world.alter_topic(where[0], self.chance.randrange(1, 9))

    def move_partition(self) -> None:
        where = self._partition()
        if where is not None:
            self.world.move_partition(*where, self.chance.choice(self.world.config.log_dirs))

    def produce(self) -> None:
        where = self._partition()
        if where is None:
            return self.create_topic()
        for _ in range(self.chance.randrange(1, 4)):
            self.world.produce(
                *where,
                self.chance.choice((Acks.ALL, Acks.ALL, Acks.LEADER, Acks.NONE)),
                client=self.chance.choice(CLIENTS),
                size=self.chance.choice((5, 40, 200)),
                count=self.chance.randrange(1, 4),
            )
        return None

    def repeat(self) -> None:
        """A client sends its newest batch again: the same offset, or the first time for good."""
        where, client = self._partition(), self.chance.choice(CLIENTS[1:])
        if where is None:
            return
        promises = self.world.topics[where[0]].partition(where[1])
        latest = promises.latest.get(client)
        sequence = self.world.sequences.get((*where, client))
        if latest is None or sequence is None or promises.is_hidden(latest):
            return  # hidden: its producer may be forgotten, and the batch be taken once more
        if sequence == latest.base_sequence:
            self.world.sequences[*where, client] = sequence + latest.record_count
        elif sequence != latest.base_sequence + latest.record_count:
            return
        acks = self.chance.choice((Acks.ALL, Acks.LEADER))
        self.world.produce(*where, acks, client=client, repeat=latest)

    def let_run(self) -> None:
        if self.chance.random() < 0.5:
            self.world.run_until_idle()
        else:
            self.world.life.threads.run_steps(self.chance.randrange(1, 40))

    def fetch(self) -> None:
        where = self._partition()
        if where is not None:
            self.world.fetch_all(*where)

    def list_offsets(self) -> None:
        where = self._partition()
        if where is not None:
            self.world.check_offsets(*where)

    def delete_records(self) -> None:
        where = self._partition()
        if where is None:
            return
        promises = self.world.topics[where[0]].partition(where[1])
        if promises.is_compacted:
            return  # the policy forbids it
        low, high = promises.start, max(promises.start, promises.answered_end)
        self.world.delete_records(*where, self.chance.randrange(low, high + 1))

    def pass_time(self) -> None:
        milliseconds = self.chance.choice((50, 1000, 6000, DELETION_MS, 3 * DELETION_MS))
        self.world.life.clock.advance_ms(milliseconds)


def simulate(seed: int) -> DaemonRun:
    """Play a seed; a failure names it."""
    try:
        return Simulation(seed).run()
    except Exception as error:
        error.add_note(f"play it again: make sim SEED={seed}")
        raise


@pytest.mark.timeout(300)
def test_random_lives() -> None:
    """M01 M09 M14 M15 M25: I1 to I11 and I21 to I27, with retention in two of four topics."""
    asked = os.environ.get("KAFKALOG_SIM_SEED")
    for seed in QUICK_SEEDS if asked is None else (int(asked),):
        simulate(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_many_random_lives() -> None:
    """M01 M14 M15 M25: 2,000 seeds, or as many as three minutes hold."""
    started = time.monotonic()
    seed = QUICK_SEEDS[-1]
    while seed < 2000 and time.monotonic() - started < 180:
        seed += 1
        simulate(seed)
    assert seed > 2 * len(QUICK_SEEDS)


@pytest.mark.parametrize("seed", [3, 5])
def test_a_seed_decides_everything(seed: int) -> None:
    """I29: the same seed leaves the same bytes."""
    one, two = simulate(seed), simulate(seed)
    assert one.disk.durable_files() == two.disk.durable_files()
    assert one.disk.operations == two.disk.operations
