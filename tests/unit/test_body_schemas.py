"""Goal: bodies of the control plane are taken as JSON Schema has them, and nothing is guessed.
Method: bodies of one field, read by the function that every route calls.
"""

from __future__ import annotations

import pytest

from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.schemas import DeleteUntil, PartitionsCount, parse_body


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3", 3),
        ("3.0", 3),
        ("3e2", 300),
        ("9007199254740992.0", 1 << 53),
        ("9223372036854775807", (1 << 63) - 1),
    ],
)
def test_whole_numbers(text: str, number: int) -> None:
    """1.0 is an integer in JSON Schema."""
    body = b'{"partitions_count": %s}' % text.encode()
    assert parse_body(PartitionsCount, body).partitions_count == number


@pytest.mark.parametrize("text", ["3.5", '"3"', "true", "null", "9007199254740994.0", "[3]"])
def test_what_is_no_whole_number(text: str) -> None:
    """A float above 2^53 may have been another number when it was written."""
    with pytest.raises(ApiError) as refusal:
        parse_body(PartitionsCount, b'{"partitions_count": %s}' % text.encode())
    assert refusal.value.entry.error_code == 422
    assert refusal.value.message.startswith("partitions_count: ")


@pytest.mark.parametrize("offset", ["-2", "-2.0", "9223372036854775808"])
def test_bounds_hold_for_both_spellings(offset: str) -> None:
    """The bound is the number's, not the spelling's."""
    with pytest.raises(ApiError):
        parse_body(DeleteUntil, b'{"offset": %s}' % offset.encode())
