"""Goal: topic and directory names are made and read exactly as Kafka makes and reads them.
Method: the published examples, each limit from both sides, round trips by Hypothesis.
"""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format.integers import FormatError
from kafkalog.format.topic_names import (
    DirectoryState,
    TopicPartition,
    collision_key,
    directory_name,
    is_internal,
    parse_directory_name,
    topic_name_fault,
)

HEX = "0123456789abcdef0123456789abcdef"
NAMES = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=249)


def test_a_plain_directory_name_ends_with_the_partition() -> None:
    """M02: `my-topic-12` is topic my-topic, partition 12."""
    parsed = parse_directory_name("my-topic-12")
    assert parsed.topic_partition == TopicPartition("my-topic", 12)
    assert parsed.state is DirectoryState.LIVE
    assert parsed.unique_id is None


@pytest.mark.parametrize(
    "state", [DirectoryState.DELETE, DirectoryState.FUTURE, DirectoryState.STRAY]
)
def test_a_suffixed_directory_name_keeps_its_topic(state: DirectoryState) -> None:
    parsed = parse_directory_name(f"t-0.{HEX}{state.value}")
    assert parsed.topic_partition == TopicPartition("t", 0)
    assert parsed.state is state
    assert parsed.unique_id == HEX


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


def test_partitions_sort_by_topic_then_number() -> None:
    partitions = [TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)]
    assert [str(tp) for tp in sorted(partitions)] == ["a-9", "a-10", "b-0"]
