"""Goal: no bytes crash the validator, and what it accepts can be read back by the plain decoder.
Method: Hypothesis flips, cuts and joins batches, with and without a CRC made right again.
"""

from __future__ import annotations

import struct

from hypothesis import given, strategies as st

from kafkalog.errors import InvalidRequest
from kafkalog.format.records.record_batch import (
    CRC_AT,
    HEADER_BYTES,
    Codec,
    compute_crc,
    is_crc_valid,
)
from kafkalog.log.log_config import LogConfig
from tests.partition_world import batch, checked, records_of

SOURCES = [
    batch([b"value", None, b"x" * 40], keys=[b"k", b"", None], codec=codec, producer=producer)
    for codec in Codec
    for producer in ((-1, -1, -1), (7, 0, 5))
]
CONFIGS = [
    LogConfig(),
    LogConfig(compression_type="zstd"),
    LogConfig(message_timestamp_type="LogAppendTime", cleanup_policy=frozenset({"compact"})),
]


@given(
    source=st.sampled_from(SOURCES),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 12),
    tail=st.binary(max_size=20),
    is_crc_fixed=st.booleans(),
    config=st.sampled_from(CONFIGS),
)
def test_mutated_batches(
    source: bytes,
    changes: list[tuple[int, int]],
    cut: int,
    tail: bytes,
    is_crc_fixed: bool,
    config: LogConfig,
) -> None:
    """M02: an InvalidRequest, or whole sound batches with offsets 0, 1, 2 ..."""
    data = bytearray(source[: len(source) - cut] + tail)
    for position, value in changes:
        data[position % len(data)] = value
    if is_crc_fixed and len(data) >= HEADER_BYTES:
        struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">I", data, CRC_AT, compute_crc(data))
    try:
        accepted = checked(bytes(data), config)
    except InvalidRequest:
        return
    for facts in accepted.batches:
        assert is_crc_valid(facts.data)
        records = records_of(facts.data)
        assert [record.offset for record in records] == list(range(facts.record_count))
        assert facts.last_offset_delta == facts.record_count - 1
