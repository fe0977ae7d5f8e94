"""Goal: the published figures of the canary topic come out at the level of segment and log.
Method: its batches built with struct, appended one at a time under the roll rule.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kafkalog.log.log_config import LogConfig
from tests.log_world import LogWorld
from tests.naive.batches import PlainBatch

if TYPE_CHECKING:
    from kafkalog.log.local_log import LocalLog

KNOWN_TIMES = {
    0: 1639132508991,
    1: 1639132514555,
    2: 1639132519561,
    107: 1639133044553,
    108: 1639133049552,
}
KNOWN_CRCS = {0: 2142666254, 1: 1895373344, 2: 1097825866, 107: 3361402726, 108: 1749984078}


def canary(offset: int) -> PlainBatch:
    """Record ``offset``; between the published times one every five seconds."""
    timestamp = KNOWN_TIMES.get(offset, KNOWN_TIMES[2] + 5000 * (offset - 2))
    value = {"producerId": "strimzi-canary-client", "messageId": 1 + 3 * offset}
    text = json.dumps({**value, "timestamp": timestamp}, separators=(",", ":"))
    return PlainBatch(offset, (timestamp,), (text.encode(),), base_sequence=0)


def append(log: LocalLog, batch: PlainBatch) -> None:
    """Roll when due, then append: what a produce request of one batch does."""
    data = batch.encode()
    config, timestamp_ms = log.config, batch.max_timestamp_ms
    room = log.active_segment.room(config.max_segment_bytes, config.max_segment_ms, timestamp_ms)
    if not room.holds(len(data), timestamp_ms, batch.last_offset):
        log.roll(batch.base_offset)
    log.append([data], [batch.facts()])


@pytest.mark.parametrize("offset", sorted(KNOWN_CRCS))
def test_batches_are_the_published_ones(offset: int) -> None:
    """CRC-32C over the batch, built from the published fields."""
    data = canary(offset).encode()
    assert int.from_bytes(data[17:21], "big") == KNOWN_CRCS[offset]
    assert len(data) == (148 if offset < 3 else 150)


def test_default_interval_rolls_at_109_with_three_entries() -> None:
    """M02 M03 M04 M05 M06: sizes, entries and the roll of section 1."""
    world = LogWorld(LogConfig(internal_segment_bytes=16_384))
    log = world.new_log()
    assert world.size("00000000000000000000.index") == 10_485_760
    assert world.size("00000000000000000000.timeindex") == 10_485_756
    for offset in range(111):
        append(log, canary(offset))
    assert [segment.base_offset for segment in log.segments] == [0, 109]
    closed = log.segments.first
    assert [(entry.offset, entry.position) for entry in closed.offset_index.entries()] == [
        (28, 4169),
        (56, 8364),
        (84, 12564),
    ]
    assert world.size("00000000000000000000.log") == 16_314
    assert world.size("00000000000000000000.index") == 24
    assert world.size("00000000000000000000.timeindex") == 48
    assert [entry.offset for entry in closed.time_index.entries()] == [28, 56, 84, 108]
    assert closed.largest_timestamp_ms() == KNOWN_TIMES[108]
    assert world.size("00000000000000000109.log") == 300
    assert world.size("00000000000000000109.index") == 10_485_760
    assert world.size("00000000000000000109.timeindex") == 10_485_756
    append(log, canary(111))
    assert world.size("00000000000000000109.log") == 450


SLOTS_25 = LogConfig(
    internal_segment_bytes=16_384, index_interval_bytes=150, segment_index_bytes=300
)


def test_full_time_index_rolls_at_49() -> None:
    """M03 M04 M05 M06: the time index of 25 slots is full first (section 2)."""
    world = LogWorld(SLOTS_25)
    log = world.new_log()
    for offset in range(79):
        append(log, canary(offset))
    assert [segment.base_offset for segment in log.segments] == [0, 49]
    assert world.size("00000000000000000000.log") == 7_314
    assert world.size("00000000000000000000.index") == 192
    assert world.size("00000000000000000000.timeindex") == 288
    assert log.segments.first.offset_index.entry_count() == 24
    assert log.segments.first.time_index.entry_count() == 24
    assert world.size("00000000000000000049.log") == 4_500
    assert world.size("00000000000000000049.index") == 296
    assert world.size("00000000000000000049.timeindex") == 300


def test_steady_state_segments_have_49_records() -> None:
    """M04 M06: 7,350 bytes, 192 and 288, again and again (section 2)."""
    world = LogWorld(SLOTS_25)
    log = world.new_log()
    for offset in range(49 * 4 + 1):
        append(log, canary(offset))
    for segment in log.segments.values[1:-1]:
        assert segment.size_bytes == 7_350
        assert segment.offset_index.file.acquire().size() == 192
        assert segment.time_index.file.acquire().size() == 288


def test_other_run_of_the_same_topic() -> None:
    """M05: the second published time index, 140,000 and 139,999 ms apart."""
    world = LogWorld(LogConfig(internal_segment_bytes=16_384))
    log = world.new_log()
    times = {28: 1638100314372, 56: 1638100454372, 84: 1638100594371}
    for offset in range(109):
        base = max((known for known in times if known <= offset), default=28)
        timestamp = times[base] + 5000 * (offset - base)
        plain = canary(offset)
        append(log, PlainBatch(offset, (timestamp,), plain.values, base_sequence=0))
    entries = log.active_segment.time_index.entries()
    assert {entry.offset: entry.timestamp_ms for entry in entries} == times
