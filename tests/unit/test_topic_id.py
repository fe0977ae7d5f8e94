"""Goal: ids read and write as Kafka's Uuid does, and no reserved one is ever given out.
Method: fixed examples, refused texts, round trips.
"""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import METADATA_TOPIC_ID, decode_id, encode_id, is_reserved, new_id


def test_known_ids() -> None:
    assert encode_id(UUID(int=0)) == "A" * 22
    assert encode_id(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert decode_id("a2Fma2Fsb2dPcmFjbGUwMQ").bytes == b"kafkalogOracle01"
    assert decode_id("AAAAAAAAAAAAAAAAAAAAAQ==") == METADATA_TOPIC_ID


@given(st.uuids())
def test_ids_round_trip(value: UUID) -> None:
    text = encode_id(value)
    assert len(text) == 22
    assert decode_id(text) == value


@pytest.mark.parametrize(
    "text", ["", "A" * 21, "A" * 23, "A" * 21 + "+", "A" * 22 + "=", "A" * 22 + "\n"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        decode_id(text)


def test_the_first_hundred_ids_are_reserved() -> None:
    assert is_reserved(UUID(int=0))
    assert is_reserved(UUID(int=99))
    assert not is_reserved(UUID(int=100))


def test_a_new_id_is_of_version_4_and_never_starts_with_a_dash() -> None:
    draws = iter([b"\xf8" + bytes(15), b"\xfb" + bytes(15), b"\x01" * 16])
    value = new_id(lambda: next(draws))
    assert value.bytes[0] == 1
    assert value.version == 4
