"""Goal: partitions are dealt out as Kafka does it, and patterns match what Java's would, in time.
Method: Kafka's published assignments, properties of any group; Python's own engine as the twin.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.broker.groups.consumers import assign_ranges
from kafkalog.format.topic_names import TopicPartition
from kafkalog.format.topic_pattern import MalformedPattern, TopicPattern

NAMES = ("a", "b.c", "orders", "orders-eu", "orders-us.2", "__x", "A_1", "x" * 249)
PATTERNS = (
    "a", "orders.*", "^orders$", "orders(-eu|-us)?.*", "[a-c].*", "[^_].*", r"b\.c", "b.c", ".*",
    "(a|b)*", "(a*)*b?", "orders|a|", r"\w+", r"[\w.]+\d", "x{249}", "x{3,}", "x{1,5}", "a??",
    "(?:or).+?", "[-a]", "[a-]", "[]a]", r"[\]a]", "a{0}orders", "o[^a-z]*r.*", r"__\D",
    "((o)(r))ders.{0,3}", r"orders\b.*", "a^b", "a$b", "(?i)ORDERS", "(" * 60 + "a" + ")" * 60,
)  # fmt: skip


def parts(*pairs: tuple[str, int]) -> list[TopicPartition]:
    return [TopicPartition(*pair) for pair in pairs]


def test_ranges_are_those_of_kafka() -> None:
    """The assignments that Kafka documents for its range assignor."""
    both = {"C0": ["t0", "t1"], "C1": ["t0", "t1"]}
    assert assign_ranges(both, {"t0": 3, "t1": 3}) == {
        "C0": parts(("t0", 0), ("t0", 1), ("t1", 0), ("t1", 1)),
        "C1": parts(("t0", 2), ("t1", 2)),
    }
    uneven = {"b": ["t"], "a": ["t", "u"], "c": ["nope"]}
    assert assign_ranges(uneven, {"t": 1, "u": 2}) == {
        "a": parts(("t", 0), ("u", 0), ("u", 1)),
        "b": [],
        "c": [],
    }


TOPICS = st.sampled_from(["t", "u", "v"])


@given(
    st.dictionaries(st.text("abc", min_size=1), st.sets(TOPICS), max_size=6),
    st.dictionaries(TOPICS, st.integers(1, 9)),
)
def test_every_partition_has_one_reader(
    subscriptions: dict[str, set[str]], counts: dict[str, int]
) -> None:
    """No partition is read twice or not at all, and nobody reads what he did not ask for."""
    assigned = assign_ranges(subscriptions, counts)
    assert assigned.keys() == subscriptions.keys()
    dealt = [at for each in assigned.values() for at in each]
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert sorted(dealt) == [
        TopicPartition(topic, number) for topic in sorted(wanted & counts.keys())
        for number in range(counts[topic])
    ]  # fmt: skip
    for member, own in assigned.items():
        assert {at.topic for at in own} <= subscriptions[member]


def test_patterns_match_what_a_backtracking_engine_matches() -> None:
    """The subset means what it means to everybody else."""
    for text in PATTERNS:
        pattern = TopicPattern(text)
        for name in NAMES:
            assert pattern.matches(name) is bool(re.fullmatch(text, name)), (text, name)


@given(st.text(r"ab.|*+?(){}[]^$\-,1", min_size=1, max_size=12), st.text("ab.-1", max_size=6))
def test_any_pattern_is_refused_or_means_what_it_says(text: str, name: str) -> None:
    """No text crashes the parser or is taken for another pattern."""
    try:
        pattern = TopicPattern(text)
    except MalformedPattern:
        return
    if "{," in text:
        return  # Python alone takes it for {0,
    found = pattern.matches(name)
    try:
        twin = re.compile(text)
    except re.error:
        return
    assert found is bool(twin.fullmatch(name))


def test_no_pattern_takes_long() -> None:
    """A pattern from outside cannot stop the daemon."""
    for text in ("(a+)+b", "(a|a)*b", "(.*)*b", "a*a*a*a*a*a*a*a*b", "(a?){200}a{200}b"):
        assert not TopicPattern(text).matches("a" * 249)


@pytest.mark.parametrize(
    "text",
    ["", "(", "a)", "[a", "*", "a**", "a{2,1}", "(?!x)a", "(?=x)", r"\1", "a\\", "[z-a]", "a*+",
     "x" * 1001, "(" * 1001, "((a{99}){99}){99}", r"[\w-a]{1001}", "(?<=x)a", "\ud800"],
)  # fmt: skip
def test_what_is_no_pattern_is_refused(text: str) -> None:
    """What RE2 lacks is an error, never a pattern that means something else."""
    with pytest.raises(MalformedPattern):
        TopicPattern(text)
