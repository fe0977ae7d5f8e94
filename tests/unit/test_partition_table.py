"""Goal: a partition out of service costs nothing per request that is refused.
Method: raise its fault many times and look what hangs on it.
"""

from __future__ import annotations

import pytest

from kafkalog.broker.catalog import PartitionTable
from kafkalog.errors import CorruptBatch
from kafkalog.format.topic_names import TopicPartition


def test_refused_requests_leave_nothing_on_the_fault() -> None:
    """M15: no frame, and so no body, of an earlier request stays reachable."""
    table = PartitionTable()
    fault = CorruptBatch("rot", file="/d/t-0/0.log", position=0)
    table.add_fault(TopicPartition("t", 0), fault, "/d/t-0")

    def depth() -> int:
        with pytest.raises(CorruptBatch) as refused:
            table.get("t", 0)
        frames, trace = 0, refused.value.__traceback__
        while trace is not None:
            frames, trace = frames + 1, trace.tb_next
        return frames

    assert [depth() for _ in range(5)] == [depth()] * 5
