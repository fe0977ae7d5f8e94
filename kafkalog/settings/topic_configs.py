"""Topic configurations: from overrides as text to a LogConfig, and their description.

Owns Kafka's precedence: topic override, dynamic broker key, first broker synonym that is set,
Kafka's default. Pure; any thread. Source: Kafka 4.1 ``LogConfig``, ``ServerTopicConfigSynonyms``,
``ConfigHelper``.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkalog.broker.values import DEFAULT_SOURCE, ConfigEntry, ConfigSynonym
from kafkalog.errors import InvalidTopicConfig
from kafkalog.format.suggestions import did_you_mean
from kafkalog.log.log_config import LogConfig
from kafkalog.settings.setting import Setting, Value, format_value
from kafkalog.settings.tables import BROKER_LEVEL, TOPIC_LEVEL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TOPIC_SOURCE = "DYNAMIC_TOPIC_CONFIG"
DYNAMIC_BROKER_SOURCE = "DYNAMIC_BROKER_CONFIG"
BROKER_SOURCE = "STATIC_BROKER_CONFIG"


def parse_topic_config(overrides: Mapping[str, str], defaults: LogConfig) -> LogConfig:
    """Overrides laid over defaults; InvalidTopicConfig for an unknown key or a wrong value."""
    changes: dict[str, Any] = {}
    for key, text in overrides.items():
        setting = TOPIC_LEVEL.get(key)
        if setting is None:
            hint = did_you_mean(key, TOPIC_LEVEL)
            raise InvalidTopicConfig(f"Unknown topic config name: {key}{hint}", key=key)
        try:
            value = setting.parse(text)
        except ValueError as error:
            raise setting.refusal(InvalidTopicConfig, text, str(error)) from error
        if setting.field:
            changes[setting.field] = inward(value)
    return checked(replace(defaults, **changes))


def topic_defaults(given: Mapping[str, Value]) -> LogConfig:
    """The LogConfig of a topic without overrides; given are the configured broker keys."""
    values: dict[str, Any] = {
        setting.field: inward(topic_default(setting, given))
        for setting in TOPIC_LEVEL.values()
        if setting.field
    }
    return checked(LogConfig(**values))


def topic_default(setting: Setting, given: Mapping[str, Value]) -> Value:
    """What a topic key is without an override: its first synonym in given, else Kafka's default."""
    for synonym in setting.synonyms:
        value = given.get(synonym.key)
        if value is None:
            continue
        if isinstance(value, int) and not isinstance(value, bool):
            value *= synonym.scale
            if setting.key == "retention.ms" and value < 0:
                return -1
        return value
    return setting.default


def describe_topic_config(
    overrides: Mapping[str, str], given: Mapping[str, Value], dynamic: Mapping[str, Value]
) -> list[ConfigEntry]:
    """Every listed topic key, sorted. overrides must have passed parse_topic_config.

    given are the broker keys configured at the start, dynamic those set at run time.
    """
    return [
        _entry(TOPIC_LEVEL[key], overrides, given, dynamic)
        for key in sorted(TOPIC_LEVEL)
        if not TOPIC_LEVEL[key].internal
    ]


def synonym_chain(
    keys: Sequence[str], given: Mapping[str, Value], dynamic: Mapping[str, Value]
) -> list[ConfigSynonym]:
    """The values of broker keys of one meaning, in the order of precedence.

    Like Kafka's, it begins at the first key's own entry: ``log.retention.hours`` alone in the file
    has an effect, and is not listed unless ``log.retention.ms`` is set.
    """
    defaults = {key: BROKER_LEVEL[key].default for key in keys}
    chain = [
        ConfigSynonym(key, format_value(values[key]), source)
        for source, values in (
            (DYNAMIC_BROKER_SOURCE, dynamic),
            (BROKER_SOURCE, given),
            (DEFAULT_SOURCE, defaults),
        )
        for key in keys
        if values.get(key) is not None
    ]
    return list(itertools.dropwhile(lambda synonym: synonym.name != keys[0], chain))


def _entry(
    setting: Setting,
    overrides: Mapping[str, str],
    given: Mapping[str, Value],
    dynamic: Mapping[str, Value],
) -> ConfigEntry:
    keys = [synonym.key for synonym in setting.synonyms]
    chain = synonym_chain(keys, given, dynamic) if keys else []
    value = topic_default(setting, {**given, **dynamic})
    if setting.key in overrides:
        value = setting.parse(overrides[setting.key])
        chain.insert(0, ConfigSynonym(setting.key, format_value(value), TOPIC_SOURCE))
    return described(setting, value, chain)


def described(
    setting: Setting, value: Value, chain: Sequence[ConfigSynonym], *, is_read_only: bool = False
) -> ConfigEntry:
    """The entry of a key with this value, which the first of the chain gives."""
    return ConfigEntry(
        setting.key,
        format_value(value),
        format_value(setting.default),
        chain[0].source if chain else DEFAULT_SOURCE,
        setting.kind.name,
        setting.doc,
        tuple(chain),
        is_read_only,
    )


def inward(value: Value) -> Value | frozenset[str]:
    """Lists are sets internally: their order and repetitions have no meaning."""
    return frozenset(value) if isinstance(value, tuple) else value


def checked(config: LogConfig) -> LogConfig:
    """Rules over several keys (Kafka's LogConfig.validateValues)."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidTopicConfig(
            "conflict topic config setting min.compaction.lag.ms "
            f"({config.min_compaction_lag_ms}) > max.compaction.lag.ms "
            f"({config.max_compaction_lag_ms})",
            key="min.compaction.lag.ms",
        )
    return config
