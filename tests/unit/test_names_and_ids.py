"""Goal: names of topics, directories and ids, and times that people write, are read as Kafka reads
them.
Method: tables of good and bad texts, and there and back.
"""

from __future__ import annotations

import datetime
import string
from uuid import UUID

import click
import pytest
from hypothesis import example, given, strategies as st

from kafkalog.cli.arguments import timestamp
from kafkalog.console import formatting
from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import (
    METADATA_TOPIC_ID,
    DirectoryState,
    TopicPartition,
    collision_key,
    decode_id,
    directory_name,
    encode_id,
    is_internal,
    is_reserved,
    new_id,
    parse_directory_name,
    topic_name_fault,
)
from kafkalog.server.produce.json_body import Formats, columns_of, parse_documents
from kafkalog.server.protocol.errors import ApiError
from kafkalog.server.protocol.media_types import EmbeddedFormat
from kafkalog.server.protocol.parameters import parse_timestamp

HEX = "0123456789abcdef0123456789abcdef"
NAMES = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=249)


def test_a_plain_directory_name_ends_with_the_partition() -> None:
    """M02: `my-topic-12` is topic my-topic, partition 12."""
    parsed = parse_directory_name("my-topic-12")
    assert parsed.topic_partition == TopicPartition("my-topic", 12)
    assert parsed.state is DirectoryState.LIVE
    assert parsed.unique_id is None


@pytest.mark.parametrize(
    "name",
    [
        "lost+found",
        "t-delete",
        "x-y",
        "-3",
        "",
        "-",
        "t-",
        "backup",
        "t-0.-delete",
        "t-0-delete",
        "t.0.abc-stray",
        "t-1_0",
        "t-٣",
        "t- 3",
        "t-2147483648",
    ],
)
def test_a_foreign_directory_name_is_refused(name: str) -> None:
    with pytest.raises(FormatError, match="not in the form of topic-partition"):
        parse_directory_name(name)


@pytest.mark.parametrize("state", [DirectoryState.DELETE, DirectoryState.STRAY])
def test_a_long_topic_is_cut_so_that_the_name_has_255_characters(state: DirectoryState) -> None:
    name = directory_name(TopicPartition("a" * 249, 7), state, HEX)
    assert len(name) == 255
    assert name.endswith(f"a-7.{HEX}{state.value}")
    assert parse_directory_name(name).topic_partition.partition == 7


def test_a_future_name_is_never_cut() -> None:
    suffix_length = len(f"-7.{HEX}-future")
    fits = TopicPartition("a" * (255 - suffix_length), 7)
    assert len(directory_name(fits, DirectoryState.FUTURE, HEX)) == 255
    with pytest.raises(FormatError, match="too long to be moved"):
        directory_name(TopicPartition(fits.topic + "a", 7), DirectoryState.FUTURE, HEX)


@given(NAMES, st.integers(0, 2**31 - 1), st.sampled_from(DirectoryState))
def test_directory_names_round_trip(topic: str, partition: int, state: DirectoryState) -> None:
    given_partition = TopicPartition(topic[:200], partition)
    unique_id = None if state is DirectoryState.LIVE else HEX
    parsed = parse_directory_name(directory_name(given_partition, state, unique_id))
    assert (parsed.topic_partition, parsed.state, parsed.unique_id) == (
        given_partition,
        state,
        unique_id,
    )


@given(st.text(max_size=300))
def test_any_text_parses_or_is_refused(name: str) -> None:
    try:
        parsed = parse_directory_name(name)
    except FormatError:
        return
    assert parsed.topic_partition.topic
    assert parsed.topic_partition.partition >= 0


@pytest.mark.parametrize("name", ["a", "a" * 249, "a.b_c-D9", "...", "__x", "-"])
def test_legal_topic_names(name: str) -> None:
    assert topic_name_fault(name) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "empty string"),
        (".", "'.' or '..'"),
        ("..", "'.' or '..'"),
        ("a" * 250, "longer than the max allowed length 249"),
        ("a b", "other than ASCII"),
        ("a/b", "other than ASCII"),
        ("ä", "other than ASCII"),
        ("a\n", "other than ASCII"),
        ("a\0", "other than ASCII"),
    ],
)
def test_illegal_topic_names(name: str, reason: str) -> None:
    assert reason in (topic_name_fault(name) or "")


def test_names_that_differ_by_dot_and_underscore_collide() -> None:
    assert collision_key("a.b_c") == collision_key("a_b.c") == collision_key("a.b.c")
    assert collision_key("a-b") != collision_key("a_b")


def test_internal_topics() -> None:
    assert is_internal("__consumer_offsets")
    assert is_internal("__transaction_state")
    assert is_internal("__share_group_state")
    assert not is_internal("__mine")


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


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_YEAR_9999_MS = 253_402_300_799_999
_FORMATS = Formats(EmbeddedFormat.TEXT, EmbeddedFormat.TEXT)


def stored_ms(text: str) -> int:
    records = parse_documents((b'{"timestamp":"%b"}' % text.encode(),), _FORMATS)
    (stamp,) = columns_of(records, _FORMATS, now_ms=0).columns.timestamps.tolist()
    return int(stamp)


@given(st.integers(0, _YEAR_9999_MS), st.integers(-14, 14))
@example(8_171, 0)
@example(1_081_786_148_962, 2)
def test_a_moment_is_its_millisecond(moment_ms: int, hours: int) -> None:
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
    assert parse_timestamp(formatting.timestamp(moment_ms)) == moment_ms // 1000 * 1000


def test_what_is_finer_is_cut() -> None:
    """A record is never later than it says."""
    assert parse_timestamp("1970-01-01T00:00:08.171999Z") == 8_171
    assert stored_ms("1970-01-01T00:00:08.171999Z") == 8_171


def test_a_refusal_says_what_it_may_be() -> None:
    with pytest.raises(ApiError) as refusal:
        parse_timestamp("yesterday", "spec", ("earliest", "latest"))
    assert refusal.value.details == {"parameter": "spec"}
    assert refusal.value.message.startswith("spec is earliest, latest, milliseconds since 1970 or")


@pytest.mark.parametrize("text", ["1970-01-01T00:00:00.999+00:01", "1969-12-31T23:59:59.999Z"])
def test_before_1970_is_refused(text: str) -> None:
    """What is well written is not called badly written, and means none of the negative numbers."""
    with pytest.raises(click.BadParameter) as refusal:
        timestamp(text)
    assert refusal.value.message == f"'{text}' is before 1970, where timestamps begin"
    with pytest.raises(ApiError) as answer:
        parse_timestamp(text)
    assert answer.value.message == "timestamp is before 1970, where timestamps begin."
    with pytest.raises(ApiError):
        stored_ms(text)


@pytest.mark.parametrize("text", ["yesterday", "1960-01-01T00:00:00", "-1", str(1 << 63)])
def test_the_command_line_says_how_a_moment_is_written(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not ms since 1970 or ISO-8601 with a zone"):
        timestamp(text)
