"""Goal: what a backup holds of sinks is true of the topics beside it, and goes on without loss.
Method: whole managers on the simulated disks; batches are committed while a backup is taken.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from kafkalog.format.topic_partition import SINK_STATE_TOPIC
from kafkalog.manager.background_operations import OperationState
from kafkalog.manager.backup import Backup
from tests.backup_world import BACKUP, NEW_DIRS, back_up, make_places, manifest_of, restore
from tests.backup_world import started as restarted
from tests.sim.sim_faults import Effect, Fault
from tests.sink_world import (
    QUERY,
    Producer,
    begin,
    committed,
    is_settled,
    markers,
    sinks_of,
    with_topic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.sim.sim_manager import SimManager


class WatchedBackup(Backup):
    """Something happens behind the capture of its first partition."""

    meanwhile: Callable[[], object]

    def _count(self, name: str, count: int) -> None:
        super()._count(name, count)
        if (name, self._progress[name]) == ("partitions_done", 1):
            self.meanwhile()


def back_up_around(sim: SimManager, meanwhile: Callable[[], object]) -> None:
    """A backup of everything, with something in the middle of it."""
    backup = WatchedBackup(sim.manager, BACKUP, (), may_link=True)
    backup.meanwhile = meanwhile
    backup.prepare()
    backup.run(sim.manager.background.begin("test", {}, lambda _: None))


def with_places() -> SimManager:
    """One partition, the first batch committed, room for a backup."""
    sim = with_topic(1)
    make_places(sim.disk)
    write(sim, 1, "a1 b1")
    return sim


def write(sim: SimManager, batch_id: int, *appends: str) -> Producer:
    """A whole batch: begun, a record for each word of each append, committed."""
    producer = begin(sim, batch_id)
    for values in appends:
        assert producer.send(*values.split()).error is None
    sinks_of(sim).commit(QUERY, batch_id, [producer.winner()])
    return producer


def restored(sim: SimManager) -> SimManager:
    """A daemon on what a restore makes of the backup."""
    disk = sim.kill()
    restore(disk)
    copy = restarted(disk, NEW_DIRS)
    copy.clock.advance_ms(1)
    return copy


def test_what_the_state_calls_committed_is_shown() -> None:
    """Goal: a batch that counts as written is in the topics of the backup.
    Method: a batch commits in the middle of a backup.
    """
    sim = with_places()
    back_up_around(sim, lambda: write(sim, 2, "a2"))
    copy = restored(sim)
    newest = max(int(value[1:]) for value in committed(copy))
    known = sinks_of(copy).describe(QUERY).committed_batch_id
    assert known is not None
    assert known <= newest
    assert is_settled(copy)


def test_a_backup_of_some_topics_holds_the_state_of_their_sinks() -> None:
    """Goal: what is decided is shown, what is open goes on, what is committed is known.
    Method: one query is decided without markers, one is open; a backup of their topic alone.
    """
    sim = with_places()
    sim.operations.topics.create("other", 1, {})
    identity = sinks_of(sim).begin("open", 7, 0, 0)
    assert identity is not None
    opened = Producer(sim, identity)
    assert opened.send("a7").error is None
    two = begin(sim, 2)
    assert two.send("a2").error is None
    no_space = Fault(Effect.RAISE, errno.ENOSPC, frozenset({"write"}), "/t-", times=1_000)
    sim.disk.faults.add(no_space)
    sinks_of(sim).commit(QUERY, 2, [two.winner()])
    sim.disk.faults.clear()
    assert committed(sim) == ["a1", "b1"]
    operation = back_up(sim, "t")
    assert operation.state is OperationState.SUCCEEDED, operation.error
    held = {
        str(partition.topic_partition)
        for log_dir in manifest_of(sim.disk).log_dirs
        for partition in log_dir.partitions
    }
    assert held == {"t-0", f"{SINK_STATE_TOPIC}-0"}
    copy = restored(sim)
    assert sinks_of(copy).begin(QUERY, 2, 0, 0) is None
    assert markers(copy) == ["COMMIT", "COMMIT"]
    opened.bind(copy)
    assert opened.send("b7").error is None
    sinks_of(copy).commit("open", 7, [opened.winner()])
    assert committed(copy) == ["a1", "b1", "a7", "a2", "b7"]
    assert is_settled(copy)
