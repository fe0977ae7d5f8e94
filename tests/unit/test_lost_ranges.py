"""Goal: acknowledged offsets that are gone are refused by name, never passed by with 200, until
somebody accepts the loss, durably.
Method: segments deleted, cut and damaged between two lives of a manager on a simulated disk.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog.errors import CorruptBatch, InvalidRequest, OffsetBelowLogStart, StorageFault
from kafkalog.format.offset_ranges import LostRange, not_accepted
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.log.inspect.invariants import check_invariants
from kafkalog.log.log_config import LogConfig
from kafkalog.log.values import AppendOrigin, Isolation, LogProof
from tests.cleaning_daemon import CleaningDaemon
from tests.partition_world import DIRECTORY, NOW_MS, PartitionWorld, batch, records_of
from tests.sim.sim_faults import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence


SEGMENTED = LogConfig(internal_segment_bytes=300, index_interval_bytes=0)
COUNT = 18
EVERY_FILE = ("log", "index", "timeindex", "snapshot")
GAPLESS = LogProof(is_gapless=True)


def world_of(config: LogConfig = SEGMENTED) -> PartitionWorld:
    """Batches of one record and at least five segments, all durable."""
    world = PartitionWorld(config, corruption="keep")
    for number in range(COUNT):
        data = batch([b"value-%02d" % number], timestamps=NOW_MS + number, keys=[b"%d" % number])
        world.append(data)
    assert len(world.bases()) >= 5
    world.flush()
    return world


def stop(world: PartitionWorld, *, clean: bool) -> None:
    """As a stop of the daemon leaves the files, or a kill."""
    if clean:
        world.log.close()
    else:
        world.log.close_handles()


def remove(world: PartitionWorld, base: int, suffixes: Sequence[str] = EVERY_FILE) -> None:
    """Files of one segment, as far as it has them."""
    for suffix in suffixes:
        path = f"{DIRECTORY}/{base:020d}.{suffix}"
        if world.filesystem.exists(path):
            world.filesystem.unlink(path)


def without_the_second_log() -> tuple[PartitionWorld, int, int]:
    """A log whose second ``.log`` is gone since a clean stop, and the bases that it lay between."""
    world = world_of()
    base, following = world.bases()[1:3]
    stop(world, clean=True)
    remove(world, base, ("log",))
    world.open(clean=True, recovery_point=COUNT)
    return world, base, following


def cut(world: PartitionWorld, base: int, size: int) -> None:
    """A ``.log`` that somebody truncated."""
    world.filesystem.open_write(f"{DIRECTORY}/{base:020d}.log").truncate(size)


def accept(world: PartitionWorld, lost: LostRange) -> None:
    """As the operation does it, but for the file."""
    world.log.losses.accept(lost)
    world.log.pass_accepted(lost)


def outcome(world: PartitionWorld, isolation: Isolation = Isolation.LOG_END) -> dict[int, object]:
    """By offset: the record that a fetch there begins with, or the range that it is refused for."""
    found: dict[int, object] = {}
    for offset in range(world.log.log_end_offset):
        try:
            answer = world.log.read(offset, 1 << 20, isolation)
        except CorruptBatch as error:
            details = error.details
            found[offset] = details.get("first_offset"), details.get("last_offset")
        except OffsetBelowLogStart:
            found[offset] = "below"
        else:
            found[offset] = records_of(answer.data)[0].offset if answer.data else None
    return found


def expected(first: int, last: int) -> dict[int, object]:
    """Every record but those of one lost range."""
    return {offset: (first, last) if first <= offset <= last else offset for offset in range(COUNT)}


def size_of_batch(world: PartitionWorld) -> int:
    """All are of one size."""
    bases = world.bases()
    return world.log.segments.first.size_bytes // (bases[1] - bases[0])


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_log_is_refused_by_name(clean: bool) -> None:
    """First, middle and last but one; with what proves it, at two starts and a kill after it."""
    for suffixes, proof in (
        (("log",), LogProof()),
        (("log", "timeindex"), LogProof()),
        (("log", "index", "timeindex"), LogProof()),  # the producer snapshot
        (EVERY_FILE, GAPLESS),
    ):
        for slot in (0, 1, -2):
            if slot == 0 and "index" in suffixes:
                continue  # nothing says that it was there
            world = world_of()
            bases = world.bases()
            base, following = bases[slot], bases[slot + 1]
            stop(world, clean=clean)
            remove(world, base, suffixes)
            for again in (clean, True, False):
                world.open(clean=again, recovery_point=COUNT, proof=proof)
                assert outcome(world) == expected(base, following - 1), (suffixes, slot)
                assert outcome(world, Isolation.LAST_STABLE) == expected(base, following - 1)
                assert world.log.log_start_offset == 0
                stop(world, clean=again)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("proof", [LogProof(), GAPLESS])
def test_a_closed_log_that_was_cut_is_a_lost_range(clean: bool, proof: LogProof) -> None:
    """To nothing, and behind its first batch, where the indexes or the birth of the log prove it.

    One that ends in the middle of a batch is refused too, as bytes that are no batch.
    """
    world = world_of()
    base, following, size = world.bases()[1], world.bases()[2], size_of_batch(world)
    for kept in (0, 1):
        stop(world, clean=clean)
        cut(world, base, kept * size)
        world.open(clean=clean, recovery_point=COUNT, proof=proof)
        assert outcome(world) == expected(base + kept, following - 1)
        world = world_of()
    stop(world, clean=clean)
    cut(world, base, size + size // 2)
    world.open(clean=clean, recovery_point=COUNT, proof=proof)
    found = outcome(world)
    assert [found[offset] for offset in range(base + 1)] == list(range(base + 1))
    for offset in range(base + 1, following):
        assert isinstance(found[offset], tuple)


@pytest.mark.parametrize("clean", [True, False])
def test_the_lost_end_of_a_log_stays_lost(clean: bool) -> None:
    for how in ("emptied", "removed"):
        world = world_of()
        base = world.bases()[-1]
        stop(world, clean=clean)
        if how == "removed":
            remove(world, base, ("log",))
        else:
            cut(world, base, 0)
        lost = base, COUNT - 1
        for again in (clean, True, False):
            world.open(clean=again, recovery_point=COUNT)
            assert world.log.log_end_offset == COUNT, how
            assert outcome(world) == expected(*lost), how
            stop(world, clean=again)
        world.open(clean=True, recovery_point=COUNT)
        assert world.append(batch([b"next"])).first_offset == COUNT
        assert outcome(world) == expected(*lost) | {COUNT: COUNT}
        assert world.log.losses.ranges == (lost,)


def test_a_log_that_goes_while_it_is_served_is_a_lost_range() -> None:
    world = world_of()
    base, following = world.bases()[1], world.bases()[2]
    remove(world, base, ("log",))
    assert records_of(world.log.read(base, 1 << 20, Isolation.LOG_END).data)[0].offset == base
    world.log.segments.values[1].close_handles()
    assert outcome(world) == expected(base, following - 1)
    with pytest.raises(CorruptBatch):
        world.log.offset_for_timestamp(NOW_MS + base, Isolation.LOG_END)


def test_a_read_from_below_ends_before_a_lost_range() -> None:
    world, base, following = without_the_second_log()
    answer = world.log.read(0, 1 << 20, Isolation.LOG_END)
    assert answer.next_offset == base
    records = world.read_all(following)
    assert [record.offset for record in records] == list(range(following, COUNT))


def test_what_a_lost_segment_knew_of_transactions_is_still_told() -> None:
    """Its abort markers are gone, its transaction index is not: also after the loss is accepted."""
    world = PartitionWorld(LogConfig(), corruption="keep")
    world.append(batch([b"aborted"], producer=(7, 0, 0), is_transactional=True))
    world.log.roll()
    world.append(batch([b"other"]))
    marker = build_end_transaction_marker(7, 0, 0, ControlRecordType.ABORT, timestamp_ms=NOW_MS)
    world.append(marker, origin=AppendOrigin.COORDINATOR)
    world.log.roll()
    world.append(batch([b"last"]))
    world.flush()
    stop(world, clean=True)
    remove(world, 1, ("log",))
    for proof in (LogProof(), LogProof(), *[LogProof(accepted_losses=((1, 2),))] * 2):
        world.open(clean=True, recovery_point=4, proof=proof)
        found = world.log.read(0, 1 << 20, Isolation.LAST_STABLE)
        assert [(each.producer_id, each.first_offset) for each in found.aborted] == [(7, 0)]
        assert world.log.read(3, 1 << 20, Isolation.LAST_STABLE).aborted == []
        stop(world, clean=True)


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_what_was_never_durable_is_no_loss(policy: str) -> None:
    """A power cut that takes the unsynced end of a segment and leaves the name of the next one ends
    the log there, be it compacted: a log that has no gaps so far got none by its cleaner.
    """
    world = world_of(replace(SEGMENTED, cleanup_policy=frozenset({policy})))
    base, size = world.bases()[1], size_of_batch(world)
    stop(world, clean=False)
    cut(world, base, size)
    for _ in range(2):
        world.open(clean=False, recovery_point=base, proof=GAPLESS)
        assert world.log.log_end_offset == base + 1
        assert outcome(world) == {offset: offset for offset in range(base + 1)}
        assert not world.log.losses.ranges
        stop(world, clean=False)
    world.open(clean=False, recovery_point=base, proof=GAPLESS)
    world.append(batch([b"next"], timestamps=NOW_MS, keys=[b"next"]))
    assert outcome(world) == {offset: offset for offset in range(base + 2)}


def test_a_gap_that_nothing_proves_is_legal() -> None:
    """Compaction leaves such gaps, and a snapshot or a cut index proves nothing of them."""
    compacted = LogConfig(
        internal_segment_bytes=300, index_interval_bytes=0, cleanup_policy=frozenset({"compact"})
    )
    world = world_of(compacted)
    base, following = world.bases()[1], world.bases()[2]
    stop(world, clean=True)
    remove(world, base, ("log", "index", "timeindex"))
    world.open(clean=True, recovery_point=COUNT)
    found = outcome(world)
    assert [found[each] for each in range(base, following)] == [following] * (following - base)


def test_an_accepted_loss_is_a_gap_like_any_other() -> None:
    world, base, following = without_the_second_log()
    later = world.bases()[2]
    (lost,) = world.log.losses.ranges
    assert lost == (base, following - 1)
    accept(world, lost)
    passed = {each: following if base <= each < following else each for each in range(COUNT)}
    assert (world.log.losses.ranges, outcome(world)) == ((), passed)
    accepted = LogProof(accepted_losses=world.log.losses.proof.accepted_losses, is_gapless=True)
    stop(world, clean=False)
    with capture_logs() as lines:
        world.open(clean=False, proof=accepted)
    assert [line for line in lines if line["log_level"] == "error"] == []
    assert outcome(world) == passed
    assert f"{base:020d}.index" not in world.names()
    stop(world, clean=True)
    remove(world, following, ("log",))
    world.open(clean=True, recovery_point=COUNT, proof=accepted)
    assert world.log.losses.ranges == ((following, later - 1),)
    found = outcome(world)
    assert {found[each] for each in range(base, later)} == {(following, later - 1)}


def test_a_loss_in_front_of_the_log_ends_with_the_log_start() -> None:
    """Accepted, or deleted by the policy or by hand: nothing is missed below the start."""
    for how in ("accept", "delete records", "retention"):
        world = world_of()
        bases = world.bases()
        stop(world, clean=True)
        remove(world, 0, ("log",))
        world.open(clean=True, recovery_point=COUNT)
        assert (world.log.log_start_offset, world.log.losses.ranges) == (0, ((0, bases[1] - 1),))
        start = bases[1]
        if how == "accept":
            accept(world, world.log.losses.ranges[0])
        elif how == "delete records":
            world.log.delete_records(start)
        else:
            world.log.delete_segments(world.log.segments.values[:1], "retention")
            start = bases[2]
        assert (world.log.log_start_offset, world.log.losses.ranges) == (start, ())
        assert outcome(world)[0] == "below"
        check_invariants(world.log)


def test_a_first_segment_without_any_file_is_missed_after_a_clean_stop() -> None:
    """The log is gapless and began there when it was closed; a deletion says so itself."""
    world = world_of()
    bases = world.bases()
    stop(world, clean=True)
    remove(world, 0)
    stopped = LogProof(log_start_offset=0, end_offset=COUNT, is_gapless=True)
    world.open(clean=True, recovery_point=COUNT, proof=stopped)
    assert outcome(world) == expected(0, bases[1] - 1)
    stop(world, clean=False)
    world.open(clean=False, recovery_point=COUNT, proof=GAPLESS)
    assert outcome(world) == expected(0, bases[1] - 1), "it stays known after a kill"
    for start in (bases[1], bases[2] - 1):
        stop(world, clean=True)
        proof = LogProof(log_start_offset=start, end_offset=COUNT, is_gapless=True)
        world.open(clean=True, recovery_point=COUNT, log_start_offset=start, proof=proof)
        assert (world.log.log_start_offset, world.log.losses.ranges) == (start, ())


def test_a_time_that_may_lie_in_a_lost_range_is_refused() -> None:
    world, base, following = without_the_second_log()
    for offset in range(COUNT):
        if base <= offset <= following:
            with pytest.raises(CorruptBatch) as refused:
                world.log.offset_for_timestamp(NOW_MS + offset, Isolation.LOG_END)
            assert refused.value.details["first_offset"] == base
            continue
        found = world.log.offset_for_timestamp(NOW_MS + offset, Isolation.LOG_END)
        assert found == (NOW_MS + offset, offset)


def test_kafkas_rule_passes_a_hole_by() -> None:
    """corruption='kafka': what a missing segment leaves behind is told, and proves nothing."""
    world = world_of()
    world.corruption = "kafka"
    base, following = world.bases()[1], world.bases()[2]
    stop(world, clean=True)
    remove(world, base, ("log",))
    world.open(clean=True, recovery_point=COUNT)
    assert outcome(world)[base] == following
    assert f"{base:020d}.index" not in world.names()


def test_what_was_deleted_is_not_lost_again() -> None:
    world = world_of()
    base, following = world.bases()[1:3]
    stop(world, clean=True)
    remove(world, base)
    world.open(clean=True, recovery_point=COUNT, proof=GAPLESS)
    world.log.delete_records(base + 1)
    assert world.log.losses.search() == ((base + 1, following - 1),)
    world.log.delete_records(following)
    assert world.log.losses.search() == ()


def test_a_front_that_a_kafka_deleted_is_no_loss() -> None:
    """Its retention writes no log start, but cuts the leader epochs there; lost files cut none."""
    for is_deleted in (True, False):
        world = world_of()
        first, following = world.bases()[:2]
        if is_deleted:
            world.log.increment_log_start_offset(following, "retention of a Kafka")
        stop(world, clean=True)
        remove(world, first)
        proof = LogProof(is_gapless=True, log_start_offset=first, end_offset=COUNT)
        world.open(clean=True, recovery_point=COUNT, proof=proof)
        assert world.log.losses.ranges == (() if is_deleted else ((first, following - 1),))
        assert world.log.log_start_offset == (following if is_deleted else first)


def damaged(world: CleaningDaemon, *suffixes: str) -> tuple[CleaningDaemon, LostRange]:
    """The next life of a daemon, whose log lost files of its second segment."""
    log = world.log()
    bases = [segment.base_offset for segment in log.segments]
    directory, disk = log.directory, world.sim.stop()
    for suffix in suffixes:
        disk.unlink(f"{directory}/{bases[1]:020d}.{suffix}")
    return CleaningDaemon(disk), LostRange(bases[1], bases[2] - 1)


def first_offset(world: CleaningDaemon, offset: int) -> int:
    """Where a fetch begins."""
    operations, seen = world.sim.operations, Isolation.HIGH_WATERMARK
    return operations.fetch(world.log(), offset, 1 << 20, seen, may_block=True).base_offset


@pytest.mark.parametrize("suffixes", [("log",), ("log", "index", "timeindex", "snapshot")])
def test_a_log_with_a_loss_is_not_cleaned_before_it_is_accepted(suffixes: tuple[str, ...]) -> None:
    """After a clean and a start the hole would be one of compaction."""
    world = CleaningDaemon()
    world.topic()
    world, lost = damaged(world, *suffixes)
    for _ in range(2):
        world.turn()
        run = world.order()
        world.sim.threads.run_until_idle()
        assert isinstance(run[0].error, CorruptBatch)
        assert (world.cleaners.cleaned, world.checkpoint()) == ([], None)
        assert world.sim.operations.logs.losses("t", 0) == ((lost,), ())
        with pytest.raises(CorruptBatch):
            first_offset(world, lost.first_offset)
        world = CleaningDaemon(world.sim.stop())
    assert world.sim.operations.logs.accept_loss("t", 0, lost) == ((), (lost,))
    world.turn()
    assert world.checkpoint()
    assert not world.log().losses.proof.is_gapless
    for _ in range(2):
        assert first_offset(world, lost.first_offset) == lost.last_offset + 1
        world = CleaningDaemon(world.sim.kill())


def test_only_a_lost_range_can_be_accepted() -> None:
    world = CleaningDaemon()
    world.topic(cleanup_policy="delete")
    accept = world.sim.operations.logs.accept_loss
    with pytest.raises(InvalidRequest, match="nothing of it is lost"):
        accept("t", 0, LostRange(0, 1))
    world, lost = damaged(world, "log")
    accept = world.sim.operations.logs.accept_loss
    first, last = lost
    for wrong in ((0, 0), (first, last + 1), (first + 1, last), (first - 1, last), (last, first)):
        with pytest.raises(InvalidRequest, match=f"lost and not accepted: {first} to {last}"):
            accept("t", 0, LostRange(*wrong))
    assert accept("t", 0, lost) == accept("t", 0, lost) == ((), (lost,))


def test_an_acceptance_that_is_not_durable_is_none() -> None:
    world = CleaningDaemon()
    world.topic(cleanup_policy="delete")
    world, lost = damaged(world, "log")
    world.sim.disk.faults.add(
        Fault(path_contains="kafkalog.checkpoint", error=errno.ENOSPC, times=10**9)
    )
    with pytest.raises(StorageFault):
        world.sim.operations.logs.accept_loss("t", 0, lost)
    with pytest.raises(CorruptBatch):
        first_offset(world, lost.first_offset)
    assert world.sim.operations.logs.losses("t", 0) == ((lost,), ())
    world.sim.disk.faults.clear()
    assert world.sim.operations.logs.accept_loss("t", 0, lost) == ((), (lost,))
    world = CleaningDaemon(world.sim.kill())
    assert first_offset(world, lost.first_offset) == lost.last_offset + 1


def test_a_log_that_goes_while_it_is_served_costs_its_offsets_alone() -> None:
    world = CleaningDaemon()
    log = world.topic(min_cleanable_dirty_ratio="1")
    bases = [segment.base_offset for segment in log.segments]
    lost = LostRange(bases[1], bases[2] - 1)
    world.sim.disk.unlink(f"{log.directory}/{bases[1]:020d}.log")
    assert world.sim.operations.logs.losses("t", 0) == ((lost,), ())
    log.segments.values[1].close_handles()
    for _ in range(2):
        with pytest.raises(CorruptBatch):
            first_offset(world, lost.first_offset)
    assert world.sim.manager.logs.unit_of(log).log_dir.is_online
    sample = next(each for each in world.sim.operations.metrics_snapshot().samples())
    assert sample.lost_offsets == bases[2] - bases[1]
    world.sim.operations.logs.accept_loss("t", 0, lost)
    assert first_offset(world, lost.first_offset) == bases[2]
    assert bases[1] not in [segment.base_offset for segment in log.segments]
    check_invariants(log)
    world = CleaningDaemon(world.sim.stop())
    assert first_offset(world, lost.first_offset) == bases[2]


def test_what_is_left_of_holes_without_the_accepted_ranges() -> None:
    for holes, accepted, left in (
        ([(5, 9)], [], [(5, 9)]),
        ([(5, 9), (0, 4), (20, 20)], [], [(0, 9), (20, 20)]),
        ([(5, 9)], [(5, 9)], []),
        ([(5, 9)], [(0, 100)], []),
        ([(5, 9)], [(6, 7)], [(5, 5), (8, 9)]),
        ([(5, 9)], [(8, 30), (0, 5)], [(6, 7)]),
        ([(5, 9), (20, 29)], [(9, 20)], [(5, 8), (21, 29)]),
        ([], [(1, 2)], []),
    ):
        assert list(not_accepted(holes, accepted)) == left, (holes, accepted)
