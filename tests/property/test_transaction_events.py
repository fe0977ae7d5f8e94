"""Goal: what is noted of a source's batches stands for all of them, and is little.
Method: batches and aborted transactions by chance, told to one reader and replayed to another; the
state of both at the end of each source.
"""

from __future__ import annotations

import pickle
import random
import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.cleaner.cleaned_transactions import CleanedTransactionMetadata
from kafkalog.cleaner.transaction_events import RecordedTransactions, replay
from kafkalog.format.control_record import ControlRecordType
from kafkalog.log.values import AbortedTransaction

KINDS = (None, ControlRecordType.ABORT, ControlRecordType.ABORT, ControlRecordType.COMMIT)


def state_of(transactions: CleanedTransactionMetadata) -> object:
    """All that a later batch may be told by; the order of producers is none of it."""
    begun = {
        producer_id: (each.transaction, each.has_data)
        for producer_id, each in transactions._aborting.items()
    }
    return begun, sorted(transactions._coming), transactions._committing, transactions.retained


@given(seed=st.integers(0, 2**32))
def test_a_replay_ends_each_source_as_the_batches_do(seed: int) -> None:
    """Goal: the state of either pass at the beginning of each group.
    Method: few producers, transactions that overlap, are told twice, too early, or never end.
    """
    chance = random.Random(seed)
    whole, replayed, recorded = (
        CleanedTransactionMetadata(), CleanedTransactionMetadata(), RecordedTransactions()
    )  # fmt: skip
    offset = 0
    told: list[AbortedTransaction] = []
    for _ in range(chance.randrange(1, 8)):
        for _ in range(chance.randrange(3)):
            first = max(0, offset + chance.randrange(-20, 40))
            told.append(
                AbortedTransaction(chance.randrange(4), first, first + chance.randrange(30), 0)
            )
        some = chance.sample(told, chance.randrange(len(told) + 1))
        whole.add_aborted(some)
        replayed.add_aborted(some)
        for _ in range(chance.randrange(40)):
            offset += chance.randrange(1, 4)
            producer_id = chance.randrange(4)
            if chance.random() < 0.8:
                whole.on_batch(producer_id, offset)
                recorded.on_batch(producer_id, offset)
            else:
                kind = chance.choice(KINDS)
                whole.on_control_batch(producer_id, offset, kind)
                recorded.on_control_batch(producer_id, offset, kind)
        replay(pickle.loads(pickle.dumps(recorded.take_events())), replayed)
        assert state_of(replayed) == state_of(whole)


def test_events_go_with_transactions_not_with_batches() -> None:
    """Goal: a transaction of many batches is three events.
    Method: a thousand batches of each of two producers, who take turns.
    """
    recorded = RecordedTransactions()
    for offset in range(2_000):
        recorded.on_batch(offset % 2, offset)
    recorded.on_control_batch(0, 2_000, ControlRecordType.COMMIT)
    recorded.on_control_batch(1, 2_001, ControlRecordType.ABORT)
    events = recorded.take_events()
    assert events[:, 1].tolist() == [0, 1, 1_998, 1_999, 2_000, 2_001]
    assert recorded.take_events().shape == (0, 3)


def test_aborted_transactions_are_not_kept_beside_their_events() -> None:
    """Goal: nobody asks a group that is only read for what its segment's index would say.
    Method: an aborted transaction with data, up to its marker.
    """
    recorded = RecordedTransactions()
    recorded.add_aborted([AbortedTransaction(7, 0, 1, 0)])
    assert recorded.on_batch(7, 0)
    assert not recorded.on_control_batch(7, 1, ControlRecordType.ABORT)
    assert recorded.retained == []
    assert len(recorded.take_events()) == 2


def test_an_event_takes_few_bytes() -> None:
    """Goal: a segment of small transactions fits into a slot.
    Method: what 200,000 transactions of one batch leave in memory, and their replay beside it.
    """
    recorded = RecordedTransactions()
    tracemalloc.start()
    for offset in range(0, 400_000, 2):
        recorded.on_batch(7, offset)
        recorded.on_control_batch(7, offset + 1, ControlRecordType.COMMIT)
    noted = tracemalloc.get_traced_memory()[0]
    events = recorded.take_events()
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    replay(events, CleanedTransactionMetadata())
    replaying = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert len(events) == 400_000
    assert noted < 48 * len(events)
    assert replaying < 32 << 20
    assert np.array_equal(events[:, 1], np.arange(400_000))
