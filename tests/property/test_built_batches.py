"""Goal: a batch of our own is judged by the builder's facts exactly as by a walk over its bytes.
Method: random records and topic rules; the whole validator on the same bytes is the plain twin.
"""

from __future__ import annotations

from base64 import b64encode

import msgspec
import numpy as np
from hypothesis import given, strategies as st

from kafkalog.errors import KafkalogError
from kafkalog.format.records.batch_builder import (
    NO_PRODUCER,
    BuiltBatch,
    ProducerStamp,
    RecordColumns,
    build_batch,
    build_plain_batch,
    build_single_batch,
)
from kafkalog.log.log_config import LogConfig
from kafkalog.log.validator import validate, validate_built
from kafkalog.log.values import AppendOrigin, ValidatedRecords
from kafkalog.server.produce.append import PartitionTarget, make_batches, prepare
from kafkalog.server.produce.json_body import Formats, columns_of, parse
from kafkalog.server.protocol.media_types import EmbeddedFormat

NOW_MS = 1_700_000_000_000
INFLATED_MAX = 1 << 20
NEAR = st.integers(NOW_MS - 30, NOW_MS + 30)
RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=5),
        st.none() | st.binary(max_size=200),
        st.just(-1) | NEAR | st.integers(-3, 2**63 - 1),
    ),
    min_size=1,
    max_size=6,
)
PRODUCERS = st.just(NO_PRODUCER) | st.builds(
    ProducerStamp, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1), st.integers(-1, 2**31 - 1)
)
CONFIGS = st.builds(
    LogConfig,
    message_timestamp_type=st.sampled_from(["CreateTime", "LogAppendTime"]),
    message_timestamp_before_max_ms=st.sampled_from([10, 2**63 - 1]),
    message_timestamp_after_max_ms=st.sampled_from([10, 2**63 - 1]),
    cleanup_policy=st.sets(st.sampled_from(["compact", "delete"]), min_size=1).map(frozenset),
    compression_type=st.sampled_from(["producer", "uncompressed", "zstd"]),
    max_message_bytes=st.sampled_from([100, 1 << 20]),
)


def outcome_of(
    batch: BuiltBatch, config: LogConfig, *, by_facts: bool
) -> tuple[type[KafkalogError], str] | tuple[ValidatedRecords, bytes]:
    """(error, text) or (what will be written but for its bytes, the bytes)."""
    try:
        if by_facts:
            done = validate_built(batch, config, NOW_MS, max_decompressed_bytes=INFLATED_MAX)
        else:
            done = validate(
                bytes(batch.data),
                config,
                NOW_MS,
                AppendOrigin.CLIENT,
                max_decompressed_bytes=INFLATED_MAX,
            )
    except KafkalogError as error:
        return type(error), error.message
    (facts,) = done.batches
    bare = facts._replace(data=b"")
    return done._replace(batches=(bare,)), bytes(facts.data)


@given(records=RECORDS, producer=PRODUCERS, config=CONFIGS)
def test_facts_say_what_the_bytes_say(
    records: list[tuple[bytes | None, bytes | None, int]],
    producer: ProducerStamp,
    config: LogConfig,
) -> None:
    """M01: every rule and every rewrite, with and without the walk, with and without a producer."""
    keys, values, timestamps = map(list, zip(*records, strict=True))
    columns = RecordColumns.of(keys, values, timestamps)
    batch = build_plain_batch(columns, producer=producer)
    assert bytes(batch.data) == build_batch(columns, **producer._asdict())
    assert batch.record_count == len(records)
    assert batch.null_key_count == keys.count(None)
    assert (batch.min_timestamp, batch.max_timestamp) == (min(timestamps), max(timestamps))
    assert outcome_of(batch, config, by_facts=True) == outcome_of(batch, config, by_facts=False)


@given(records=RECORDS, chosen=st.data())
def test_a_selection_is_a_batch_of_its_rows(
    records: list[tuple[bytes | None, bytes | None, int]], chosen: st.DataObject
) -> None:
    """M01: the rows of one partition give the same bytes as if they had come alone."""
    rows = chosen.draw(st.lists(st.integers(0, len(records) - 1), min_size=1, unique=True))
    keys, values, timestamps = map(list, zip(*records, strict=True))
    whole = RecordColumns.of(keys, values, timestamps)
    part = RecordColumns.of(
        [keys[row] for row in rows],
        [values[row] for row in rows],
        [timestamps[row] for row in rows],
    )
    assert build_plain_batch(whole, np.array(rows, np.int64)) == build_plain_batch(part)


SIZES = st.sampled_from([0, 1, 63, 64, 8191, 8192, 1 << 20]) | st.integers(0, 300)
TEXT = st.none() | SIZES.map(lambda size: b"k" * size)


@given(key=TEXT, value=TEXT, timestamp=st.integers(-(2**63), 2**63 - 1))
def test_one_record_is_built_alike_without_columns(
    key: bytes | None, value: bytes | None, timestamp: int
) -> None:
    """M01: the shorter way for a single record gives the batch that the kernels give."""
    columns = RecordColumns.of([key], [value], timestamp)
    assert build_single_batch(key, value, timestamp) == build_plain_batch(columns)


BODIES = {
    EmbeddedFormat.BINARY: st.none() | st.binary(max_size=90).map(lambda b: b64encode(b).decode()),
    EmbeddedFormat.JSON: st.none() | st.text(max_size=9) | st.integers() | st.lists(st.booleans()),
    EmbeddedFormat.TEXT: st.none() | st.text(max_size=90),
}


@given(embedded=st.sampled_from(EmbeddedFormat), chosen=st.data())
def test_a_request_of_one_record_is_prepared_as_one_of_many(
    embedded: EmbeddedFormat, chosen: st.DataObject
) -> None:
    """M01: the only record of a body becomes the batch that its columns give, in every format."""
    record = chosen.draw(
        st.fixed_dictionaries({}, optional={"key": BODIES[embedded], "value": BODIES[embedded]})
    )
    body = msgspec.json.encode({"records": [record]})
    formats, place = Formats(embedded, embedded), PartitionTarget(3, 2, 0)
    count, (batch,) = prepare(body, formats, NOW_MS, 10, place)
    parsed = parse(body, formats, max_records=10)
    (twin,) = make_batches(columns_of(parsed, formats, now_ms=NOW_MS), place)
    assert (count, batch.partition, batch.selection.tolist()) == (1, 2, [0])
    assert batch.built == twin.built
