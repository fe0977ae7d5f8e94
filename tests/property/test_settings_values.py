"""Goal: reading a value succeeds or refuses, nothing else, and printing it is its inverse.
Method: random texts against every declared key; random accepted values printed and read again.
"""

from __future__ import annotations

import contextlib

from hypothesis import given, strategies as st

from kafkalog.errors import InvalidConfig, InvalidTopicConfig
from kafkalog.settings import load_settings
from kafkalog.settings.setting import Kind, format_value, parse_value
from kafkalog.settings.settings import key_of_variable
from kafkalog.settings.tables import BROKER_LEVEL, TOPIC_LEVEL

TEXTS = st.one_of(
    st.text(max_size=12),
    st.integers().map(str),
    st.floats().map(repr),
    st.sampled_from(
        [
            "",
            "true",
            "-1",
            "compact",
            "compact, delete",
            "١",
            "1e400",
            "0x10",
            "--1",
            "7d",
            "1GiB",
            "1.5h",
        ]
    ),
)
DEFAULTS = load_settings(None, {}, {})


@given(st.sampled_from(sorted(BROKER_LEVEL)), TEXTS)
def test_a_broker_value_is_taken_or_refused(key: str, text: str) -> None:
    with contextlib.suppress(InvalidConfig):
        settings = load_settings(None, {}, {key: text})
        value = settings.values[key].value
        assert BROKER_LEVEL[key].valid.accepts(value)


@given(st.dictionaries(st.sampled_from(sorted(TOPIC_LEVEL)), TEXTS, max_size=4))
def test_topic_values_are_taken_or_refused_and_described(overrides: dict[str, str]) -> None:
    with contextlib.suppress(InvalidTopicConfig):
        config = DEFAULTS.topic_config(overrides)
        described = DEFAULTS.describe_topic_config(overrides)
        again = {entry.name: entry.value for entry in described if entry.value is not None}
        if "internal.segment.bytes" in overrides:
            again["internal.segment.bytes"] = overrides["internal.segment.bytes"]
        assert DEFAULTS.topic_config(again) == config


@given(st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)))
def test_a_printed_value_reads_as_itself(value: float) -> None:
    if isinstance(value, bool):
        kind = Kind.BOOLEAN
    else:
        kind = Kind.LONG if isinstance(value, int) else Kind.DOUBLE
    text = format_value(value)
    assert text is not None
    assert parse_value(kind, text) == value


@given(st.sampled_from(sorted(BROKER_LEVEL)))
def test_every_key_has_a_variable(key: str) -> None:
    suffix = key.replace("_", "__").replace("-", "___").replace(".", "_").upper()
    assert key_of_variable(suffix) == key
