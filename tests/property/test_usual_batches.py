"""Goal: the shorter way of the validator for a client's usual batch decides as the whole one does.
Method: random batches and topic rules, fields of the header changed with the checksum made right
again; the validator without its shorter way is the plain twin.
"""

from __future__ import annotations

import struct

from hypothesis import given, strategies as st

from kafkalog.errors import KafkalogError
from kafkalog.format.records.record_batch import CRC_AT, HEADER_BYTES, Codec, compute_crc
from kafkalog.log.log_config import LogConfig
from kafkalog.log.validator import _validate_any, validate_usual
from kafkalog.log.values import AppendOrigin, ValidatedRecords
from tests.partition_world import NOW_MS, batch

NEAR = st.integers(NOW_MS - 30, NOW_MS + 30)
TIMES = st.just(-1) | NEAR | st.integers(-(2**63), 2**63 - 1)
# The last one makes a batch that no one kernel checks.
VALUES = st.one_of(st.none(), st.binary(max_size=99), st.binary(max_size=99), st.just(bytes(2500)))
RECORDS = st.lists(
    st.tuples(st.none() | st.binary(max_size=5), VALUES, NEAR | TIMES), min_size=1, max_size=5
)
PRODUCERS = st.just((-1, -1, -1)) | st.tuples(
    st.integers(-2, 2**63 - 1), st.integers(-2, 2**15 - 1), st.integers(-2, 2**31 - 1)
)
CONFIGS = st.builds(
    LogConfig,
    message_timestamp_type=st.sampled_from(["CreateTime", "CreateTime", "LogAppendTime"]),
    message_timestamp_before_max_ms=st.sampled_from([10, 2**63 - 1]),
    message_timestamp_after_max_ms=st.sampled_from([10, 2**63 - 1]),
    cleanup_policy=st.sets(st.sampled_from(["compact", "delete"]), min_size=1).map(frozenset),
    compression_type=st.sampled_from(["producer", "uncompressed", "zstd"]),
    max_message_bytes=st.sampled_from([100, 1 << 20]),
)
# Where a field of the header is, how it is packed, and what else it may say.
SMALL = st.integers(-3, 7)
FIELDS = st.one_of(
    st.tuples(st.just(0), st.just("q"), SMALL),  # base offset
    st.tuples(st.just(8), st.just("i"), st.integers(-3, 300)),  # length
    st.tuples(st.just(12), st.just("i"), SMALL),  # leader epoch
    st.tuples(st.just(16), st.just("b"), SMALL),  # magic
    st.tuples(st.just(21), st.just("h"), st.sampled_from([0, 1, 4, 5, 7, 8, 16, 32, 64, 128, -1])),
    st.tuples(st.just(23), st.just("i"), SMALL),  # last offset delta
    st.tuples(st.just(27), st.just("q"), TIMES),  # base timestamp
    st.tuples(st.just(35), st.just("q"), TIMES),  # greatest timestamp
    st.tuples(st.just(43), st.just("q"), st.integers(-3, 3) | st.just(2**63 - 1)),  # producer id
    st.tuples(st.just(51), st.just("h"), SMALL),  # epoch
    st.tuples(st.just(53), st.just("i"), SMALL | st.just(2**31 - 1)),  # sequence
    st.tuples(st.just(57), st.just("i"), SMALL),  # count of records
)


def outcome_of(data: bytes, config: LogConfig) -> object:
    """(error, its text) or (what will be written but for its bytes, the bytes), by every step."""
    try:
        done = _validate_any(
            data, config, NOW_MS, AppendOrigin.CLIENT, max_decompressed_bytes=1 << 20
        )
    except KafkalogError as error:
        return type(error), error.message
    return said(done)


def said(done: ValidatedRecords) -> object:
    bare = [facts._replace(data=b"", leader_epoch=0) for facts in done.batches]
    return done._replace(batches=tuple(bare)), [bytes(facts.data) for facts in done.batches]


def compare(data: bytes, config: LogConfig) -> bool:
    """Whether the shorter way takes it; then it says what the other says."""
    usual = validate_usual(data, config, NOW_MS)
    view = validate_usual(memoryview(bytearray(data)).toreadonly(), config, NOW_MS)
    assert (usual is None) == (view is None)
    if usual is None or view is None:
        return False
    assert said(usual) == said(view) == outcome_of(data, config)
    (facts,) = usual.batches
    assert facts.data is data, "as it was sent"
    return True


@given(records=RECORDS, producer=PRODUCERS, config=CONFIGS, codec=st.sampled_from([0, 0, 0, 1, 3]))
def test_batches_as_clients_make_them(
    records: list[tuple[bytes | None, bytes | None, int]],
    producer: tuple[int, int, int],
    config: LogConfig,
    codec: int,
) -> None:
    """M01 M02: and each that has no more than the rules ask for goes the shorter way."""
    keys, values, timestamps = map(list, zip(*records, strict=True))
    data = batch(values, timestamps=timestamps, keys=keys, codec=Codec(codec), producer=producer)
    is_usual = compare(data, config)
    done = outcome_of(data, config)
    if isinstance(done, tuple) and isinstance(done[0], ValidatedRecords):
        is_plain = config.message_timestamp_type == "CreateTime" and not codec
        is_near = all(abs(timestamp - NOW_MS) <= 10 for timestamp in timestamps)
        assert is_usual or not (is_plain and is_near and done[1] == [data])


@given(
    records=RECORDS,
    fields=st.lists(FIELDS, min_size=1, max_size=3),
    spots=st.lists(st.tuples(st.integers(HEADER_BYTES, 400), st.integers(0, 255)), max_size=2),
    tail=st.sampled_from((b"", b"", b"", b"\0", b"tail")),
    config=CONFIGS,
    is_crc_right=st.sampled_from((True, True, True, False)),
)
def test_batches_with_changed_fields(
    records: list[tuple[bytes | None, bytes | None, int]],
    fields: list[tuple[int, str, int]],
    spots: list[tuple[int, int]],
    tail: bytes,
    config: LogConfig,
    is_crc_right: bool,
) -> None:
    """M02: what the shorter way takes has every field as the longer one wants it."""
    keys, values, timestamps = map(list, zip(*records, strict=True))
    data = bytearray(batch(values, timestamps=timestamps, keys=keys) + tail)
    for at, code, value in fields:
        struct.pack_into(f">{code}", data, at, value)
    for at, value in spots:
        data[HEADER_BYTES + (at - HEADER_BYTES) % (len(data) - HEADER_BYTES)] = value
    if is_crc_right:
        struct.pack_into(">I", data, CRC_AT, compute_crc(data))
    compare(bytes(data), config)


def test_every_cut_of_a_batch() -> None:
    """Nothing is read beyond what came."""
    data = batch([b"value", None], keys=[b"k", b""])
    assert compare(data, LogConfig())
    for size in range(len(data)):
        assert not compare(data[:size], LogConfig())
    assert not compare(data + data, LogConfig())
