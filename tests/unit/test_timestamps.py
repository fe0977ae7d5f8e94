"""Goal: a time that people write is the millisecond that it says, in queries and in records.
Method: every kind of millisecond written as ISO-8601 and read back by integers; the bounds by hand.
"""

from __future__ import annotations

import datetime

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkalog.cli.arguments import Moment
from kafkalog.console import formatting
from kafkalog.server.produce.json_body import Formats, columns_of, parse_documents
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.media_types import EmbeddedFormat
from kafkalog.server.protocol.parameters import parse_timestamp

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_YEAR_9999_MS = 253_402_300_799_999
_FORMATS = Formats(EmbeddedFormat.TEXT, EmbeddedFormat.TEXT)


def stored_ms(text: str) -> int:
    """The timestamp of a record that brings this one."""
    records = parse_documents((b'{"timestamp":"%b"}' % text.encode(),), _FORMATS)
    (stamp,) = columns_of(records, _FORMATS, now_ms=0).columns.timestamps.tolist()
    return int(stamp)


@given(st.integers(0, _YEAR_9999_MS), st.integers(-14, 14))
@example(8_171, 0)
@example(1_081_786_148_962, 2)
def test_a_moment_is_its_millisecond(moment_ms: int, hours: int) -> None:
    """No rounding of floating point moves it."""
    zone = datetime.timezone(datetime.timedelta(hours=hours))
    try:
        moment = (_EPOCH + datetime.timedelta(milliseconds=moment_ms)).astimezone(zone)
    except OverflowError:  # in the year 10000 there
        return
    text = moment.isoformat()
    assert parse_timestamp(text) == moment_ms
    assert stored_ms(text) == moment_ms


@given(st.integers(0, _YEAR_9999_MS))
def test_a_moment_as_the_console_writes_it(moment_ms: int) -> None:
    """What is copied from a page can be pasted into its fields."""
    assert parse_timestamp(formatting.moment(moment_ms)) == moment_ms // 1000 * 1000


def test_what_is_finer_is_cut() -> None:
    """A record is never later than it says."""
    assert parse_timestamp("1970-01-01T00:00:08.171999Z") == 8_171
    assert stored_ms("1970-01-01T00:00:08.171999Z") == 8_171


@pytest.mark.parametrize("text", ["1970-01-01T00:00:00.999+00:01", "1969-12-31T23:59:59.999Z"])
def test_before_1970_is_refused(text: str) -> None:
    """No time becomes one of the negative numbers that mean something else."""
    with pytest.raises(ApiError):
        parse_timestamp(text)
    with pytest.raises(ApiError):
        stored_ms(text)


def test_a_refusal_says_what_it_may_be() -> None:
    """The client learns which parameter it was, and what goes there."""
    with pytest.raises(ApiError) as refusal:
        parse_timestamp("yesterday", "spec", ("earliest", "latest"))
    assert refusal.value.details == {"parameter": "spec"}
    assert refusal.value.message.startswith("spec is earliest, latest, milliseconds since 1970 or")


@pytest.mark.parametrize("text", ["1960-01-01T00:00:00Z", "1970-01-01T00:00:00+01:00"])
def test_the_command_line_says_that_it_was_before_1970(text: str) -> None:
    """What is well written is not called badly written."""
    with pytest.raises(click.BadParameter) as refusal:
        Moment().convert(text, None, None)
    assert refusal.value.message == f"'{text}' lies before 1970, where timestamps begin"
    with pytest.raises(ApiError) as answer:
        parse_timestamp(text)
    assert answer.value.message == "timestamp lies before 1970, where timestamps begin."


@pytest.mark.parametrize("text", ["yesterday", "1960-01-01T00:00:00", "-1", str(1 << 63)])
def test_the_command_line_says_how_a_moment_is_written(text: str) -> None:
    """All else is told the form."""
    with pytest.raises(click.BadParameter, match="is not ms since 1970 or ISO-8601 with a zone"):
        Moment().convert(text, None, None)
