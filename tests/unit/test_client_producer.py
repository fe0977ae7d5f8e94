"""Goal: a producer never reuses a sequence that may be taken, and says when its time is over.
Method: its steps played by hand against a model of a partition that may answer, refuse, or append
and not answer; what is in the model is compared with what the producer was told to send.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.client import (
    AccessDenied,
    ClientError,
    ConnectFailed,
    OutcomeUnknown,
    OutOfOrderSequence,
    ProducerIdentity,
    ProducerRecord,
    Unavailable,
)
from kafkalog.client.batches import consumer_records
from kafkalog.client.errors import failure_of
from kafkalog.client.messages import Answer, NoAnswer
from kafkalog.client.producer import ProducerState
from kafkalog.format.records.record_batch import read_header
from tests.unit.test_client_conversation import GONE, REFUSED, error

if TYPE_CHECKING:
    from kafkalog.client.messages import Request
    from kafkalog.client.retry import Steps

T = TypeVar("T")
UNAVAILABLE = error(50304)


class Partition:
    """Keeps what was appended by the rules of idempotence, for one producer id."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.next_sequence = 0
        self.batches: dict[int, int] = {}  # base sequence -> base offset

    def append(self, batch: bytes) -> Answer:
        """As the daemon: a known sequence again is a duplicate, another one than the next a gap."""
        header = read_header(batch)
        is_duplicate = header.base_sequence in self.batches
        if not is_duplicate:
            if header.base_sequence != self.next_sequence:
                return error(40905)
            self.batches[header.base_sequence] = len(self.values)
            self.next_sequence += header.record_count
            self.values += [r.value or b"" for r in consumer_records("t", 0, batch, 0)]
        base = self.batches[header.base_sequence]
        answer = {
            "base_offset": base,
            "last_offset": base + header.record_count - 1,
            "log_append_time": -1,
            "log_start_offset": 0,
            "duplicate": is_duplicate,
        }
        return Answer(200, {"kafka-durability": "os"}, json.dumps(answer).encode())


def play(steps: Steps[T], partition: Partition, fates: list[str]) -> T:
    """Each request meets the next fate: done, lost (appended, no answer), or an error before."""
    try:
        request: Request = next(steps)
        while True:
            outcome = meet(request, partition, fates.pop(0) if fates else "done")
            failure = failure_of(outcome, "there")
            if failure is not None:
                request = steps.throw(failure)
            else:
                assert isinstance(outcome, Answer)
                request = steps.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


def meet(request: Request, partition: Partition, fate: str) -> Answer | NoAnswer:
    """What one request comes to."""
    assert request.body is not None
    if fate == "refused":
        return REFUSED
    if fate == "vanished":
        return GONE
    if fate == "unavailable":
        return UNAVAILABLE
    if fate == "denied":
        return error(40301)
    answer = partition.append(request.body)
    return GONE if fate == "lost" else answer


def producer() -> ProducerState:
    """With an id, so that it asks for none."""
    return ProducerState(ProducerIdentity(5, 0), acks="1")


def record(value: str) -> list[ProducerRecord]:
    """One."""
    return [ProducerRecord(value)]


def test_sequences_go_on_after_what_was_appended() -> None:
    """A refusal takes none; a batch whose answer was lost keeps its own until it is known."""
    state, partition = producer(), Partition()
    play(state.send("t", [*record("a"), *record("b")], partition=0), partition, [])
    for fate, kind in (("refused", ConnectFailed), ("unavailable", Unavailable)):
        with pytest.raises(kind):
            play(state.send("t", record("never"), partition=0), partition, [fate])
        assert state.unanswered == []
    play(state.send("t", record("c"), partition=0), partition, [])
    with pytest.raises(OutcomeUnknown):
        play(state.send("t", record("d"), partition=0), partition, ["lost"])
    assert state.unanswered == [("t", 0)]
    with pytest.raises(OutcomeUnknown, match="resend it first"):
        play(state.send("t", record("e"), partition=0), partition, [])
    receipt = play(state.resend("t", 0), partition, [])
    assert receipt is not None
    assert (receipt.base_offset, receipt.is_duplicate) == (3, True)
    play(state.send("t", record("e"), partition=0), partition, [])
    assert partition.values == [b"a", b"b", b"c", b"d", b"e"]


def test_an_open_batch_stays_open_whatever_is_refused_later() -> None:
    """A no to the repetition says nothing of the first try."""
    state, partition = producer(), Partition()
    with pytest.raises(OutcomeUnknown):
        play(state.send("t", record("a"), partition=0), partition, ["lost"])
    with pytest.raises(AccessDenied):
        play(state.resend("t", 0), partition, ["denied"])
    with pytest.raises(ConnectFailed):
        play(state.resend("t", 0), partition, ["refused"])
    assert state.unanswered == [("t", 0)]
    play(state.resend("t", 0), partition, [])
    play(state.send("t", record("b"), partition=0), partition, [])
    assert partition.values == [b"a", b"b"]


def test_an_interrupted_call_leaves_its_batch_open() -> None:
    """Ctrl-C or a cancelled task between request and answer."""
    state, partition = producer(), Partition()
    steps = state.send("t", record("a"), partition=0)
    request = next(steps)
    assert request.body is not None
    partition.append(request.body)
    steps.close()
    assert state.unanswered == [("t", 0)]
    play(state.resend("t", 0), partition, [])
    play(state.send("t", record("b"), partition=0), partition, [])
    assert partition.values == [b"a", b"b"]


def test_a_gap_ends_the_producer() -> None:
    state, partition = producer(), Partition()
    partition.next_sequence = 9
    with pytest.raises(OutOfOrderSequence):
        play(state.send("t", record("a"), partition=0), partition, [])
    for again in (state.send("t", record("b"), partition=1), state.resend("t", 0)):
        with pytest.raises(OutOfOrderSequence, match="finished") as finished:
            play(again, partition, [])
        assert finished.value.nothing_was_done


@given(
    st.lists(st.sampled_from(["done", "lost", "vanished", "refused", "unavailable"]), max_size=40)
)
def test_nothing_twice_and_nothing_lost(fates: list[str]) -> None:
    """A caller that resends what is open and repeats what was refused: each value exactly once."""
    state, partition = producer(), Partition()
    wanted = [f"v{number}" for number in range(8)]
    for value in wanted:
        is_sent = False
        while not is_sent:
            try:
                if state.unanswered:
                    play(state.resend("t", 0), partition, fates)
                else:
                    play(state.send("t", record(value), partition=0), partition, fates)
                is_sent = True
            except ClientError:
                continue
    assert partition.values == [value.encode() for value in wanted]
