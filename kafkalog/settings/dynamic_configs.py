"""Dynamic configurations: of topics, and broker keys that can be changed at run time.

Of topics: from overrides as text to a LogConfig, and their description. Owns Kafka's precedence:
topic override, dynamic broker key, first broker synonym that is set, Kafka's default.

Of the broker: owns which keys can be changed: the first broker synonym of each topic key (Kafka's
``DynamicLogConfig``), whose value then replaces the file's for every topic without an override, and
the keys of the log cleaner (Kafka's ``LogCleaner.RECONFIGURABLE_CONFIGS``) and of the log
directories. Pure; any thread. Source: Kafka 4.1 ``LogConfig``, ``ServerTopicConfigSynonyms``,
``ConfigHelper``. Differs from Kafka: unknown names are refused, not stored.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkalog.broker.values import DEFAULT_SOURCE, ConfigEntry, ConfigSynonym
from kafkalog.errors import InvalidRequest, InvalidTopicConfig
from kafkalog.format.suggestions import did_you_mean
from kafkalog.log.log_config import LogConfig
from kafkalog.settings.setting import Setting, Value, format_value
from kafkalog.settings.tables import BROKER_LEVEL, TOPIC_LEVEL

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kafkalog.broker.broker_config import BrokerConfig
    from kafkalog.cleaner.config import LogCleanerConfig

TOPIC_SOURCE = "DYNAMIC_TOPIC_CONFIG"
DYNAMIC_BROKER_SOURCE = "DYNAMIC_BROKER_CONFIG"
BROKER_SOURCE = "STATIC_BROKER_CONFIG"

# Broker key that may change at run time -> the topic key whose default it is.
DYNAMIC_KEYS: dict[str, Setting] = {
    setting.synonyms[0].key: setting for setting in TOPIC_LEVEL.values() if setting.synonyms
}
ALTERABLE_KEYS = frozenset(key for key, setting in BROKER_LEVEL.items() if setting.dynamic)
_MEMORY_MIN_BYTES = 1_048_576  # of each thread, exclusive
_MAP_TOO_SMALL = (  # Kafka's sentence (Cleaner), and the third way
    "offset map is too small to fit in even a single message, so log cleaning will never make "
    "progress. You can increase log.cleaner.dedupe.buffer.size or decrease log.cleaner.threads, "
    "or increase log.cleaner.io.buffer.load.factor"
)


def plain_texts(texts: Mapping[str, str]) -> dict[str, str]:
    """Configs by key, durations and sizes as Kafka's plain numbers; unknown keys stay."""
    known = {key: TOPIC_LEVEL.get(key) or BROKER_LEVEL.get(key) for key in texts}
    return {
        key: text if (setting := known[key]) is None else setting.plain(text)
        for key, text in texts.items()
    }


# ---- topics


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
            changes[setting.field] = _inward(value)
    return _checked(replace(defaults, **changes))


def topic_defaults(given: Mapping[str, Value]) -> LogConfig:
    """The LogConfig of a topic without overrides; given are the configured broker keys."""
    values: dict[str, Any] = {
        setting.field: _inward(topic_default(setting, given))
        for setting in TOPIC_LEVEL.values()
        if setting.field
    }
    return _checked(LogConfig(**values))


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
    """Every listed topic key, sorted, and as in Kafka an internal one where the topic sets it.

    overrides must have passed parse_topic_config. given are the broker keys configured at the
    start, dynamic those set at run time.
    """
    return [
        _topic_entry(TOPIC_LEVEL[key], overrides, given, dynamic)
        for key in sorted(TOPIC_LEVEL)
        if key in overrides or not TOPIC_LEVEL[key].internal
    ]


def _synonym_chain(
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


def _topic_entry(
    setting: Setting,
    overrides: Mapping[str, str],
    given: Mapping[str, Value],
    dynamic: Mapping[str, Value],
) -> ConfigEntry:
    keys = [synonym.key for synonym in setting.synonyms]
    chain = _synonym_chain(keys, given, dynamic) if keys else []
    value = topic_default(setting, {**given, **dynamic})
    if setting.key in overrides:
        value = setting.parse(overrides[setting.key])
        chain.insert(0, ConfigSynonym(setting.key, format_value(value), TOPIC_SOURCE))
    return _described(setting, value, chain)


def _described(
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


def _inward(value: Value) -> Value | frozenset[str]:
    """Lists are sets internally: their order and repetitions have no meaning."""
    return frozenset(value) if isinstance(value, tuple) else value


def _checked(config: LogConfig) -> LogConfig:
    """Rules over several keys (Kafka's LogConfig.validateValues)."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidTopicConfig(
            "conflict topic config setting min.compaction.lag.ms "
            f"({config.min_compaction_lag_ms}) > max.compaction.lag.ms "
            f"({config.max_compaction_lag_ms})",
            key="min.compaction.lag.ms",
        )
    return config


# ---- the broker


def parse_dynamic(texts: Mapping[str, str]) -> dict[str, Value]:
    """Key -> value; InvalidRequest for a key that is unknown or not dynamic, or a wrong value."""
    values: dict[str, Value] = {}
    for key, text in texts.items():
        if key not in BROKER_LEVEL:
            hint = did_you_mean(key, sorted(ALTERABLE_KEYS))
            raise InvalidRequest(f"Unknown broker config name: {key}{hint}", key=key)
        if key not in ALTERABLE_KEYS:
            message = f"Cannot update these configs dynamically: Set({key})"
            raise InvalidRequest(message, key=key)
        setting = BROKER_LEVEL[key]
        try:
            values[key] = setting.parse(text)
        except ValueError as error:
            raise setting.refusal(InvalidRequest, text, str(error)) from error
        if key == "log.retention.ms" and values[key] == 0:
            message = f"{key} must be unlimited (-1) or, greater than or equal to 1"
            raise InvalidRequest(message, key=key, value=text)
    return values


def with_dynamic(defaults: LogConfig, dynamic: Mapping[str, Value]) -> LogConfig:
    """The defaults of topics with dynamic values over them; InvalidTopicConfig when they clash."""
    changes: dict[str, Any] = {
        DYNAMIC_KEYS[key].field: _inward(topic_default(DYNAMIC_KEYS[key], dynamic))
        for key in dynamic
        if key in DYNAMIC_KEYS
    }
    return _checked(replace(defaults, **changes))


def broker_with_dynamic(broker: BrokerConfig, dynamic: Mapping[str, Value]) -> BrokerConfig:
    """Cleaner and log directories with dynamic values over the file's; InvalidRequest."""
    changes: dict[str, Any] = {
        BROKER_LEVEL[key].field: value for key, value in dynamic.items() if key not in DYNAMIC_KEYS
    }
    changed = replace(broker, **changes)
    fault = cleaner_fault(changed.cleaner)
    if fault is not None:
        key, reason = fault
        raise InvalidRequest(f"Invalid value for configuration {key}: {reason}", key=key)
    return changed


def cleaner_fault(config: LogCleanerConfig) -> tuple[str, str] | None:
    """The key that makes the cleaner impossible and why; None: none does."""
    threads = config.threads
    if threads and config.dedupe_buffer_size_bytes // threads <= _MEMORY_MIN_BYTES:
        key = "log.cleaner.dedupe.buffer.size"
        sentence = f"{key} must be at least 1MB per cleaner thread"  # Kafka's
        return key, f"{sentence}: more than {_MEMORY_MIN_BYTES} for each of {threads}"
    if not 0 < config.io_buffer_load_factor <= 1:
        return "log.cleaner.io.buffer.load.factor", "must be above 0 and at most 1"
    if not config.map_holds_a_key:
        return "log.cleaner.dedupe.buffer.size", _MAP_TOO_SMALL
    if not config.io_max_bytes_per_second > 0:
        return "log.cleaner.io.max.bytes.per.second", "must be above 0"
    return None


def describe_broker_config(
    values: Mapping[str, Value], given: Mapping[str, Value], dynamic: Mapping[str, Value]
) -> list[ConfigEntry]:
    """Every listed broker key, sorted. values: all keys as resolved at the start."""
    return [
        _broker_entry(BROKER_LEVEL[key], values[key], given, dynamic)
        for key in sorted(BROKER_LEVEL)
        if not BROKER_LEVEL[key].internal
    ]


def without_values(entry: ConfigEntry, hidden: Collection[str]) -> ConfigEntry:
    """The entry without the values of secret keys."""
    synonyms = tuple(
        replace(one, value=None) if one.name in hidden and one.source == BROKER_SOURCE else one
        for one in entry.synonyms
    )
    is_hidden = bool(synonyms) and synonyms[0] != entry.synonyms[0]
    return replace(entry, synonyms=synonyms, value=None if is_hidden else entry.value)


def _broker_entry(
    setting: Setting, value: Value, given: Mapping[str, Value], dynamic: Mapping[str, Value]
) -> ConfigEntry:
    topic_setting = DYNAMIC_KEYS.get(setting.key)
    keys = [synonym.key for synonym in topic_setting.synonyms] if topic_setting else [setting.key]
    chain = _synonym_chain(keys, given, dynamic)
    is_read_only = setting.key not in ALTERABLE_KEYS
    return _described(setting, dynamic.get(setting.key, value), chain, is_read_only=is_read_only)
