"""Goal: documents that are decoded together say what each says alone.
Method: good and bad documents in any order; each by itself is the plain twin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from kafkalog.format.records.batch_builder import build_plain_batch
from kafkalog.server.produce.json_body import (
    DecodedGroup,
    Formats,
    NativeDialect,
    decode_each,
    decode_together,
)
from kafkalog.server.produce.v3 import V3Dialect
from kafkalog.server.protocol.bodies import NotJson
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.media_types import EmbeddedFormat

if TYPE_CHECKING:
    from kafkalog.server.produce.json_body import Dialect

NOW_MS = 1_700_000_000_000
NATIVE = NativeDialect(Formats(EmbeddedFormat.TEXT, EmbeddedFormat.JSON))
V3 = V3Dialect()
GOOD = st.sampled_from(
    [
        b"{}",
        b'{"key":null,"value":null}',
        b'{"headers":[{"key":"h","value":"AA=="}],"timestamp":5}',
        b'{"key":"k","value":{"a":[1,2.50],"a":2}}',
        b'{"key":{"type":"STRING","data":"k"},"value":{"type":"JSON","data":[1.0]}}',
        b'{"partition_id":3,"value":{"data":"AAE="},"headers":[{"name":"h"}]}',
    ]
)
BAD = st.sampled_from(
    [
        b"",
        b"x",
        b"{",
        b"1",
        b"[]",
        b"{}{}",
        b"{},{}",
        b'{"value":[1',
        b"2]}",
        b"2]},{",
        b'}],"x":[{',
        b'{"value":1,"value":2}',
        b'{"value":NaN}',
        b'{"value":"\xff"}',
        b'{"other":1}',
        b'{"partition":-1}',
        b'{"partition_id":-1}',
        b'{"timestamp":"noon"}',
        b'{"value":{"type":"STRING","data":5}}',
        b'{"value":{"type":"AVRO"}}',
        b'{"headers":[{"key":"h","value":"?"}]}',
    ]
)
DOCUMENTS = st.lists(GOOD | GOOD | BAD, min_size=1, max_size=8)


def seen(group: DecodedGroup) -> dict[int, object]:
    """What each document became: its batch and partition, or the number of its error."""
    found: dict[int, object] = {
        number: fault.entry.error_code
        for number, fault in group.faults.items()
        if isinstance(fault, ApiError)
    }
    if group.records is not None:
        partitions = group.records.partitions  # negative: the document names none
        named = [-1] * len(group.records) if partitions is None else partitions.tolist()
        for row, number in enumerate(group.numbers.tolist()):
            batch = build_plain_batch(group.records.columns, np.array([row], np.int64))
            found[number] = (bytes(batch.data), named[row])
    assert len(found) == group.document_count
    return found


def alone(document: bytes, dialect: Dialect[object]) -> tuple[object, bool]:
    """What a document is by itself, and whether it is no JSON at all."""
    try:
        return seen(decode_together([document], dialect, NOW_MS))[0], False
    except ApiError as fault:
        return fault.entry.error_code, isinstance(fault, NotJson)


@given(documents=DOCUMENTS, is_v3=st.booleans(), ends_at_broken=st.booleans())
@example(documents=[b'{"value":[1', b"2]}", b"{}"], is_v3=False, ends_at_broken=False)
@example(documents=[b'{"value":[1', b"2]},{", b'"value":3}'], is_v3=False, ends_at_broken=False)
def test_a_bad_document_takes_no_other_with_it(
    documents: list[bytes], *, is_v3: bool, ends_at_broken: bool
) -> None:
    """No document is read as a part of another, and none is lost."""
    dialect: Dialect[object] = V3 if is_v3 else NATIVE  # type: ignore[assignment] # any of them
    expected = [alone(document, dialect) for document in documents]
    broken = [number for number, (_, is_broken) in enumerate(expected) if is_broken]
    end = broken[0] + 1 if broken and ends_at_broken else len(documents)
    group = decode_each(documents, dialect, NOW_MS, ends_at_broken=ends_at_broken)
    assert seen(group) == {number: expected[number][0] for number in range(end)}
    assert group.is_broken is (ends_at_broken and bool(broken))
    try:
        together = decode_together(documents, dialect, NOW_MS)
    except ApiError:
        assert any(isinstance(found, int) for found, _ in expected)
    else:
        assert seen(together) == {number: found for number, (found, _) in enumerate(expected)}
