"""Goal: what a backup holds of sinks is true of the topics beside it, and goes on without loss.
Method: whole managers on the simulated disks; batches are committed while a backup is taken.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.background import OperationState
from kafkalog.broker.backup.backup import Backup
from kafkalog.errors import InvalidTxnState
from kafkalog.format.disk.sink_state import ProducerKey
from kafkalog.format.integers import INT16_MAX
from kafkalog.format.topic_names import SINK_STATE_TOPIC
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
    backup.run(sim.manager.background.begin("backup", {}, lambda _: None))


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


def given_epoch(sim: SimManager) -> int:
    """What the coordinator remembers of its one producer."""
    (producer,) = sinks_of(sim).describe(QUERY).producers
    return producer.value.producer_epoch


@pytest.mark.parametrize("ahead", [1, 5])
def test_epochs_go_on_behind_what_a_restored_log_knows(ahead: int) -> None:
    """No acknowledged record of a batch is taken for a repetition of an old one's."""
    sim = with_places()

    def meanwhile() -> None:
        for batch_id in range(2, 2 + ahead):
            write(sim, batch_id, f"a{batch_id} b{batch_id}")

    back_up_around(sim, meanwhile)
    copy = restored(sim)
    before = committed(copy)
    assert before[-2:] == [f"a{1 + ahead}", f"b{1 + ahead}"]
    assert given_epoch(copy) == 0
    after = write(copy, 2 + ahead, "c d", "e")
    assert committed(copy) == [*before, "c", "d", "e"]
    assert after.identity.producer_epoch == 1 + ahead


def test_a_producer_whose_epochs_a_log_has_seen_to_the_end_gets_a_successor() -> None:
    """Epochs run out by what the logs know, too."""
    sim = with_places()

    def meanwhile() -> None:
        sink = sinks_of(sim)._table.find(QUERY)
        assert sink is not None
        key = ProducerKey(QUERY, 0, 0)
        value = sink.producers[key]
        with sinks_of(sim)._table.turn(QUERY) as current:
            last = replace(value, producer_epoch=INT16_MAX - 1)
            sinks_of(sim)._table.write(current, [(key, last)])
        assert write(sim, 2, "a2").identity.producer_epoch == INT16_MAX

    back_up_around(sim, meanwhile)
    copy = restored(sim)
    former = sinks_of(copy).describe(QUERY).producers[0].value.producer_id
    after = write(copy, 3, "c")
    assert after.identity.producer_id != former
    assert after.identity.producer_epoch == 0
    assert committed(copy) == ["a1", "b1", "a2", "c"]


def test_a_task_that_outlives_a_restore_repeats_nothing() -> None:
    """An append to a restored daemon is written or refused, never taken for another one."""
    sim = with_places()
    two = begin(sim, 2)

    def meanwhile() -> None:
        assert two.send("a2").error is None
        sinks_of(sim).commit(QUERY, 2, [two.winner()])

    back_up_around(sim, meanwhile)
    copy = restored(sim)
    assert committed(copy) == ["a1", "b1", "a2"]
    again = Producer(copy, two.identity)
    assert isinstance(again.send("x2").error, InvalidTxnState)
    two.bind(copy)
    assert isinstance(two.send("b2").error, InvalidTxnState)
    with pytest.raises(InvalidTxnState):
        sinks_of(copy).commit(QUERY, 2, [two.winner()])
    write(copy, 3, "c")
    assert committed(copy) == ["a1", "b1", "a2", "c"]


def test_what_the_state_calls_committed_is_shown() -> None:
    """A batch that counts as written is in the topics of the backup."""
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
