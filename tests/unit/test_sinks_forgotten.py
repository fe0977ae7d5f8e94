"""Goal: sinks that nobody uses cost little, one that does not end is seen, and the records of
__sink_state say what was written.
Method: a simulated clock and disk; records of the state topic byte by byte.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st
from structlog.testing import capture_logs

from kafkalog.broker.directory.log_dir import REGISTRY_FILE
from kafkalog.broker.transactions import coordinator, sink_table
from kafkalog.broker.transactions.coordinator import ABORT_TASK
from kafkalog.errors import DiskFull, InvalidTxnState, NotReady
from kafkalog.format.disk.sink_state import (
    NO_BATCH,
    MalformedSinkRecord,
    ProducerKey,
    ProducerValue,
    QueryKey,
    QueryValue,
    SinkState,
    Winner,
    decode_key,
    decode_producer,
    decode_query,
    encode_key,
    encode_producer,
    encode_query,
)
from kafkalog.format.field_reader import INT16
from kafkalog.format.integers import INT16_MAX, INT32_MAX, INT64_MAX
from kafkalog.format.topic_names import SINK_STATE_TOPIC, TopicPartition
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import Effect, Fault, SimulatedCrash
from tests.sim.sim_manager import DIRS, SimManager
from tests.sink_world import (
    CONFIG,
    QUERY,
    Producer,
    begin,
    committed,
    is_settled,
    markers,
    sinks_of,
    started,
    used_up,
    with_topic,
)

if TYPE_CHECKING:
    from tests.sim.sim_filesystem import SimFilesystem


MINUTE_MS = 60_000
EXPIRATION_MS = 20 * MINUTE_MS
# Seven days, looked at once an hour, at the speed of a test.
SHORT = replace(
    CONFIG,
    transactional_id_expiration_ms=EXPIRATION_MS,
    transaction_remove_expired_transaction_cleanup_interval_ms=MINUTE_MS,
)


def save(sim: SimManager, query: str, value: str = "a") -> Producer:
    """What a ``df.write`` does: one batch, the last one."""
    identity = sinks_of(sim).begin(query, 0, 0, 0)
    assert identity is not None
    producer = Producer(sim, identity)
    assert producer.send(value).error is None
    sinks_of(sim).commit(query, 0, [producer.winner()], is_last=True)
    return producer


def again(disk: SimFilesystem) -> SimManager:
    return started(disk, seed=1, config=SHORT)


def names(sim: SimManager) -> list[str]:
    return [each.name for each in sinks_of(sim).describe_all()]


def test_a_jump_of_the_clock_forgets_no_commit() -> None:
    sim = with_topic(1, config=SHORT)
    one = begin(sim, 1)
    one.send("a")
    sinks_of(sim).commit(QUERY, 1, [one.winner()])
    sim.clock.step_wall_ms(2 * EXPIRATION_MS)
    sim.clock.advance_ms(3 * MINUTE_MS)
    assert len(sinks_of(sim).describe(QUERY).producers) == 1
    sim.clock.advance_ms(EXPIRATION_MS)
    assert sinks_of(sim).describe(QUERY).producers == ()
    assert sinks_of(sim).begin(QUERY, 1, 0, 0) is None


def test_a_silent_stream_keeps_its_commit() -> None:
    sim = with_topic(1, config=SHORT)
    one = begin(sim, 1)
    one.send("a")
    sinks_of(sim).commit(QUERY, 1, [one.winner()])
    sim.clock.advance_ms(3 * EXPIRATION_MS)
    sim = again(sim.stop())
    described = sinks_of(sim).describe(QUERY)
    assert (described.committed_batch_id, described.producers) == (1, ())
    assert sinks_of(sim).begin(QUERY, 1, 0, 0) is None
    two = begin(sim, 2)
    assert two.identity.producer_id > one.identity.producer_id
    two.send("b")
    sinks_of(sim).commit(QUERY, 2, [two.winner()])
    assert committed(sim) == ["a", "b"]


def test_attempts_that_never_come_again_go_from_a_stream_that_runs() -> None:
    sim = with_topic(1, config=SHORT)
    begin(sim, 0, 0, 1)
    for batch_id in range(10):
        one = begin(sim, batch_id)
        one.send(str(batch_id))
        sinks_of(sim).commit(QUERY, batch_id, [one.winner()])
        sim.clock.advance_ms(4 * MINUTE_MS)
    last = begin(sim, 10)
    sim.clock.advance_ms(4 * MINUTE_MS)
    assert [each.key.attempt for each in sinks_of(sim).describe(QUERY).producers] == [0]
    last.send("last")
    sinks_of(sim).commit(QUERY, 10, [last.winner()])
    assert committed(sim)[-1] == "last"


def test_a_query_that_never_committed_is_forgotten() -> None:
    sim = with_topic(1, config=SHORT)
    begin(sim, 1)
    sim.clock.advance_ms(EXPIRATION_MS + 17 * MINUTE_MS)
    assert names(sim) == []
    assert names(again(sim.stop())) == []


def test_silent_queries_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "SILENT_KEPT_MAX", 2)
    sim = with_topic(1, config=SHORT)
    for query in ("c", "b", "a"):
        sinks_of(sim).commit(query, 7, [])
        sim.clock.advance_ms(1_000)
    sim.clock.advance_ms(EXPIRATION_MS - MINUTE_MS)
    assert names(sim) == ["a", "b", "c"]
    sim.clock.advance_ms(2 * MINUTE_MS)
    assert names(sim) == ["a", "b"]


def test_names_that_are_used_once_keep_no_new_query_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_table, "SINKS_MAX", 5)
    monkeypatch.setattr(coordinator, "CROWDED", 4)
    monkeypatch.setattr(coordinator, "CROWDED_KEPT_MS", 3 * MINUTE_MS)
    sim = with_topic(1, config=SHORT)
    begin(sim, 1)
    for number in range(7):
        sinks_of(sim).commit(f"run-{number}", 7, [])
        sim.clock.advance_ms(2 * MINUTE_MS)
    assert names(sim) == [QUERY, "run-4", "run-5", "run-6"]
    assert sinks_of(sim).describe(QUERY).state == "open"


def test_an_ended_query_keeps_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    sim = with_topic(2, config=SHORT)
    monkeypatch.setattr(coordinator, "ENDED_KEPT_MS", EXPIRATION_MS // 2)
    identity = sinks_of(sim).begin("save", 0, 0, 1)
    assert identity is not None
    loser = Producer(sim, identity)
    loser.send("lost", partition=1)
    producer = save(sim, "save")
    for _ in range(2):
        (described,) = sinks_of(sim).describe_all()
        assert (described.state, described.producers) == ("committed", ())
        assert sinks_of(sim).begin("save", 0, 1, 0) is None
        sinks_of(sim).commit("save", 0, [producer.winner()], is_last=True)
        assert [committed(sim, each) for each in (0, 1)] == [["a"], []]
        assert is_settled(sim)
        for late in (producer, loser):
            late.bind(sim)
            assert isinstance(late.send("late").error, InvalidTxnState)
        sim = again(sim.kill())
    sim.clock.advance_ms(EXPIRATION_MS - 5 * MINUTE_MS)
    assert names(sim) == []


def test_more_saves_than_queries_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_table, "SINKS_MAX", 3)
    monkeypatch.setattr(coordinator, "ENDED_KEPT_MAX", 1)
    sim = with_topic(1, config=SHORT)
    begin(sim, 1)
    for number in range(5):
        save(sim, f"save-{number}", str(number))
        sim.clock.advance_ms(20_000)
    assert names(sim) == [QUERY, "save-4"]
    assert len(sinks_of(sim)._producers) == 1
    begin(sim, 1, 1)


def test_an_ended_query_may_begin_anew() -> None:
    sim = with_topic(1, config=SHORT)
    save(sim, QUERY)
    one = begin(sim, 1)
    sim.clock.advance_ms(5 * MINUTE_MS)
    one.send("b")
    sinks_of(sim).expire_once()
    sinks_of(sim).commit(QUERY, 1, [one.winner()])
    assert committed(sim) == ["a", "b"]
    assert len(sinks_of(sim).describe(QUERY).producers) == 1


def surplus(sim: SimManager) -> list[str]:
    """Ended queries, if none may stay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordinator, "ENDED_KEPT_MAX", 0)
        before = set(names(sim))
        sinks_of(sim).reconcile_once()
        return sorted(before.difference(names(sim)))


def saved_until(stop: int | None) -> tuple[SimManager, int]:
    """A save on a disk that is gone after so many calls; the next life, and how many there were."""
    sim = with_topic(1, config=SHORT)
    begin(sim, 0)
    before = len(sim.disk.operations)
    if stop is not None:
        sim.disk.stop_at(before + stop)
    with contextlib.suppress(SimulatedCrash):
        save(sim, "save")
    sim.threads.kill_all()
    count = len(sim.disk.operations) - before
    return again(sim.disk.crash(CrashMode.DROP_ALL, 0)), count


def test_a_crash_in_the_middle_of_an_end() -> None:
    _, calls = saved_until(None)
    seen = set()
    for stop in range(calls + 1):
        sim, _ = saved_until(stop)
        sim.clock.advance_ms(20_000)
        is_committed = committed(sim) == ["a"]
        seen.add(is_committed)
        if is_committed:
            assert sinks_of(sim).describe("save").producers == ()
            assert surplus(sim) == ["save"]
    assert seen == {False, True}


@pytest.mark.parametrize("nth", range(2, 6))
def test_a_fault_in_the_middle_of_an_end(nth: int) -> None:
    sim = with_topic(1, config=SHORT)
    begin(sim, 0)
    writes = frozenset({"write"})
    fault = Fault(Effect.RAISE, errno.ENOSPC, writes, SINK_STATE_TOPIC, nth=nth)
    sim.disk.faults.add(fault)
    with contextlib.suppress(DiskFull):
        save(sim, "save")
    assert (fault.seen >= nth) is (nth < 5)
    sim.disk.faults.clear()
    sim.clock.advance_ms(20_000)
    if nth == 2:
        save(sim, "save")
    assert committed(sim)[-1] == "a"
    assert sinks_of(sim).describe("save").producers == ()
    assert surplus(sim) == ["save"]


NO_SPACE = Fault(Effect.RAISE, errno.ENOSPC, frozenset({"write"}), "/t-0", times=1_000)


def sample(sim: SimManager, name: str, **labels: str) -> float | None:
    return sim.metrics.registry.get_sample_value(name, labels)


def test_a_commit_that_is_not_shown_is_seen() -> None:
    sim = with_topic(1)
    sinks_of(sim).commit("other", 1, [])
    one = begin(sim, 1)
    one.send("a")
    names = ("kafkalog_sinks_committing", "kafkalog_sink_committing_age_seconds")
    assert [sample(sim, name) for name in names] == [0, 0]
    sim.disk.faults.add(NO_SPACE)
    sinks_of(sim).commit(QUERY, 1, [one.winner()])
    sim.clock.advance_ms(60_000)
    assert [sample(sim, name) for name in names] == [1, pytest.approx(60, abs=1)]
    with pytest.raises(DiskFull):
        begin(sim, 2)
    sim.disk.faults.clear()
    sim.clock.advance_ms(20_000)
    assert [sample(sim, name) for name in names] == [0, 0]
    assert committed(sim) == ["a"]


def test_a_call_that_hangs_fails_no_task() -> None:
    sim = with_topic(1)
    sinks = sinks_of(sim)
    begin(sim, 1)
    sinks.begin("other", 1, 0, 0)
    sim.clock.advance_ms(CONFIG.transaction_max_timeout_ms - 60_000)
    failures = sample(sim, "kafkalog_scheduler_task_failures_total", task=ABORT_TASK)
    with capture_logs() as lines, sinks._table.lock(QUERY):
        sim.clock.advance_ms(110_000)
        assert sinks.describe("other").state == "aborted"
        assert sinks.describe(QUERY).state == "open"
    told = [line for line in lines if line["event"] == "sink_call_hangs"]
    assert [line["query"] for line in told] == [QUERY]
    assert sample(sim, "kafkalog_scheduler_task_failures_total", task=ABORT_TASK) == failures
    sim.clock.advance_ms(20_000)
    assert sinks.describe(QUERY).state == "aborted"


def test_what_a_used_up_producer_left_open_is_ended_by_the_commit() -> None:
    sim = with_topic(1)
    used_up(sim)
    sim.disk.faults.add(Fault(NO_SPACE.effect, NO_SPACE.error, NO_SPACE.kinds, "/t-0"))
    begin(sim, 1)
    assert markers(sim) == []
    sim.disk.faults.clear()
    sinks_of(sim).commit(QUERY, 1, [])
    assert markers(sim) == ["ABORT"]


def test_no_id_of_a_sink_is_given_before_the_sinks_are_known() -> None:
    sim = with_topic(1)
    producer_id = begin(sim, 1).identity.producer_id
    disk = sim.stop()
    for path in DIRS:
        disk.unlink(f"{path}/{REGISTRY_FILE}")
    sim = SimManager(disk, seed=1, config=CONFIG).start()
    with pytest.raises(NotReady, match="sinks"):
        sim.operations.producers.allocate()
    with pytest.raises(NotReady, match="sinks"):
        sim.operations.producers.bump(producer_id)
    sim.clock.advance_ms(1)
    given = {sim.operations.producers.allocate().producer_id for _ in range(1_500)}
    assert producer_id not in given
    assert len(given) == 1_500


def test_a_lost_directory_of_the_state_stops_no_other_producer() -> None:
    sim = with_topic(1)
    begin(sim, 1)
    state_dir = next(each for each in DIRS if sim.disk.exists(f"{each}/__sink_state-0"))
    sim = SimManager(sim.stop(), seed=1, config=CONFIG).start()
    sim.manager.logs.unit_at(state_dir).log_dir.take_offline("gone")
    sim.clock.advance_ms(1)
    identity = sim.operations.producers.allocate()
    assert sim.operations.producers.bump(identity.producer_id).producer_epoch == 1


LONGS = st.integers(0, INT64_MAX)
INTS = st.integers(0, INT32_MAX)
EPOCHS = st.integers(0, INT16_MAX)
NAMES = st.text("abc.-_", min_size=1, max_size=20)
WINNERS = st.builds(
    Winner,
    LONGS,
    EPOCHS,
    st.sets(st.builds(TopicPartition, NAMES, INTS), max_size=5).map(sorted).map(tuple),
)
QUERIES = st.builds(
    QueryValue,
    st.sampled_from(SinkState),
    st.integers(NO_BATCH, INT64_MAX),
    LONGS,
    st.lists(WINNERS, max_size=4).map(tuple),
)
PRODUCERS = st.builds(ProducerValue, LONGS, EPOCHS, LONGS, LONGS)
GOLDEN = QueryValue(
    SinkState.PREPARE_COMMIT, 7, 9, (Winner(1 << 40, 2, (TopicPartition("t", 3),)),)
)


@given(QUERIES, PRODUCERS, NAMES, INTS)
def test_round_trip(query: QueryValue, producer: ProducerValue, name: str, number: int) -> None:
    assert decode_query(encode_query(query)) == query
    assert decode_producer(encode_producer(producer)) == producer
    for key in (QueryKey(name), ProducerKey(name, number, number)):
        assert decode_key(encode_key(key)) == key


def test_golden() -> None:
    """Version 1 stays what it is: a later release reads what this one wrote."""
    assert encode_key(QueryKey("q")).hex(" ") == "00 01 00 00 01 71"
    key = encode_key(ProducerKey("q", 5, 1))
    assert key.hex(" ") == "00 01 01 00 01 71 00 00 00 05 00 00 00 01"
    winner = "000001 0000000000 0002 00000001 0001 74 00000001 00000003"
    query = f"0001 02 0000000000000007 0000000000000009 00000001 {winner}"
    assert encode_query(GOLDEN) == bytes.fromhex(query)
    producer = "0001 0000010000000000 0002 0000000000000003 0000000000000005"
    assert encode_producer(ProducerValue(1 << 40, 2, 3, 5)) == bytes.fromhex(producer)


def test_what_is_cut_or_newer_is_refused() -> None:
    key, query = encode_key(ProducerKey("q", 5, 1)), encode_query(GOLDEN)
    producer = encode_producer(ProducerValue(1, 2, 3, 4))
    newer = INT16.pack(2)
    for data, decode in ((key, decode_key), (query, decode_query), (producer, decode_producer)):
        for end in range(len(data)):
            with pytest.raises(MalformedSinkRecord):
                decode(data[:end])
        with pytest.raises(MalformedSinkRecord):
            decode(newer + data[2:])
    with pytest.raises(MalformedSinkRecord):
        decode_key(key[:2] + b"\x02" + key[3:])
    with pytest.raises(MalformedSinkRecord):
        decode_query(query[:2] + b"\x09" + query[3:])
