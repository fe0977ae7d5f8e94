"""Goal: a stream falls into the same documents however it is cut into chunks.
Method: random streams, of JSON and of anything, in random chunks; twins that look at each byte.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkalog.format.wire.json_documents import Concatenated, Lines
from tests.naive.json_documents import Documents, split_concatenated, split_lines

if TYPE_CHECKING:
    from kafkalog.format.wire.json_documents import Splitter

SPLITTERS = {Lines: split_lines, Concatenated: split_concatenated}
PIECES = st.sampled_from(
    [b"{", b"}", b"[", b"]", b'"', b"\\", b'\\"', b"\\\\", b"a", b":", b",", b" ", b"\n", b"\r\n"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.builds(
    lambda value, indent: json.dumps(value, indent=indent, ensure_ascii=False).encode(),
    st.lists(VALUES, max_size=3) | st.dictionaries(st.text(), VALUES, max_size=3),
    st.none() | st.just(1),
)
SEPARATORS = st.sampled_from([b"", b" ", b"\n", b"\r\n", b" \t"])
CUTS = st.lists(st.integers(0, 200), max_size=8)


def fed(splitter: Splitter, stream: bytes, cuts: list[int]) -> Documents:
    """What a splitter says of a stream in chunks."""
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    whole: list[bytes] = []
    for start, end in itertools.pairwise(edges):
        whole += splitter.feed(stream[start:end])
    pending_bytes, is_lost = splitter.pending_bytes, splitter.is_lost
    rest = splitter.finish()
    assert len(rest) <= 1
    assert sum(map(len, rest)) in (0, pending_bytes)
    assert splitter.pending_bytes == 0
    return Documents(whole, b"".join(rest), is_lost)


@pytest.mark.parametrize("kind", [Lines, Concatenated])
@given(stream=st.lists(PIECES, max_size=40).map(b"".join), cuts=CUTS)
@example(stream=b'{"\\', cuts=[3])
@example(stream=b'{"\\\\"}', cuts=[3, 4])
@example(stream=b"{}}{}", cuts=[])
@example(stream=b"}{{}", cuts=[])
def test_any_bytes_in_any_chunks(
    kind: type[Lines] | type[Concatenated], stream: bytes, cuts: list[int]
) -> None:
    """Hostile bytes fall as the twin has it."""
    assert fed(kind(), stream, cuts) == SPLITTERS[kind](stream)


@given(documents=st.lists(st.tuples(DOCUMENTS, SEPARATORS), max_size=6), cuts=CUTS)
def test_documents_come_out_as_they_went_in(
    documents: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    """Concatenated JSON needs no separator."""
    stream = b"".join(part for pair in documents for part in pair)
    expected = [document for document, _ in documents]
    assert fed(Concatenated(), stream, cuts) == Documents(expected, b"", is_lost=False)
