"""Goal: records of __sink_state say what was written, and nothing else is believed.
Method: round trips of generated values, golden bytes, cut and newer ones.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from kafkalog.format.topic_names import TopicPartition

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
    """Nothing is lost."""
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
    """A value that is not whole decides nothing."""
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
