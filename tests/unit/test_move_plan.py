"""Goal: a move copies, syncs and swaps in an order that ends although appends go on.
Method: the pure planner on hand-made facts, and played against a log that grows.
"""

from __future__ import annotations

import pytest

from kafkalog.broker.moves.partition_move import (
    SLICE_BYTES,
    UNFLUSHED_BYTES_MAX,
    MoveFacts,
    MoveStep,
    next_step,
)


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        (MoveFacts(10, None, False, 0), MoveStep.BEGIN),
        (MoveFacts(10, 0, False, 0), MoveStep.COPY),
        (MoveFacts(10, 9, False, UNFLUSHED_BYTES_MAX + 1), MoveStep.COPY),
        (MoveFacts(10, 9, True, UNFLUSHED_BYTES_MAX + 1), MoveStep.FLUSH),
        (MoveFacts(10, 9, True, UNFLUSHED_BYTES_MAX), MoveStep.SWAP),
        (MoveFacts(10, 10, False, UNFLUSHED_BYTES_MAX + 1), MoveStep.FLUSH),
        (MoveFacts(10, 10, False, 0), MoveStep.SWAP),
        (MoveFacts(0, 0, False, 0), MoveStep.SWAP),
    ],
)
def test_each_step(facts: MoveFacts, step: MoveStep) -> None:
    """Each combination of facts has its one step."""
    assert next_step(facts) is step


def test_it_ends_while_the_log_grows() -> None:
    """A log that grows by less than is copied a step is caught up with, synced and swapped."""
    log_end, future_end, unflushed = 100 * SLICE_BYTES, 0, 0
    is_near = False
    steps: list[MoveStep] = []
    while not steps or steps[-1] is not MoveStep.SWAP:
        step = next_step(MoveFacts(log_end, future_end, is_near, unflushed))
        steps.append(step)
        if step is MoveStep.COPY:
            copied = min(SLICE_BYTES, log_end - future_end)
            future_end += copied
            unflushed += copied
            is_near = future_end == log_end
        else:
            is_near, unflushed = False, 0
        log_end += SLICE_BYTES // 2
        assert len(steps) < 1000
    assert steps[-3:] == [MoveStep.FLUSH, MoveStep.COPY, MoveStep.SWAP]
    assert steps.count(MoveStep.FLUSH) == 1
