"""Dynamic broker configurations: broker keys that can be changed at run time.

Owns which keys these are: the first broker synonym of each topic key (Kafka's
``DynamicLogConfig``), whose value then replaces the file's for every topic without an override, and
the keys of the log cleaner (Kafka's ``LogCleaner.RECONFIGURABLE_CONFIGS``) and of the log
directories. Pure; any thread. Differs from Kafka: unknown names are refused, not stored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafkalog.errors import InvalidRequest
from kafkalog.format.suggestions import did_you_mean
from kafkalog.settings.tables import BROKER_LEVEL, TOPIC_LEVEL
from kafkalog.settings.topic_configs import (
    BROKER_SOURCE,
    checked,
    described,
    inward,
    synonym_chain,
    topic_default,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkalog.broker.broker_config import BrokerConfig, LogDirConfig
    from kafkalog.broker.values import ConfigEntry
    from kafkalog.cleaner.config import LogCleanerConfig
    from kafkalog.log.log_config import LogConfig
    from kafkalog.settings.setting import Setting, Value

# Broker key that may change at run time -> the topic key whose default it is.
DYNAMIC_KEYS: dict[str, Setting] = {
    setting.synonyms[0].key: setting for setting in TOPIC_LEVEL.values() if setting.synonyms
}

CLEANER_KEYS = frozenset(
    {
        "log.cleaner.threads",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.backoff.ms",
    }
)
LOG_DIR_KEYS = frozenset({"cordoned.log.dirs", "replica.alter.log.dirs.io.max.bytes.per.second"})
ALTERABLE_KEYS = CLEANER_KEYS | LOG_DIR_KEYS | DYNAMIC_KEYS.keys()
_MEMORY_MIN_BYTES = 1_048_576  # of each thread, exclusive


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
        DYNAMIC_KEYS[key].field: inward(topic_default(DYNAMIC_KEYS[key], dynamic))
        for key in dynamic
        if key in DYNAMIC_KEYS
    }
    return checked(replace(defaults, **changes))


def cleaner_with_dynamic(broker: BrokerConfig, dynamic: Mapping[str, Value]) -> LogCleanerConfig:
    """The cleaner's configuration with dynamic values over the file's; InvalidRequest."""
    config = _broker_with(CLEANER_KEYS, broker, dynamic).cleaner
    fault = cleaner_fault(config)
    if fault is not None:
        key, reason = fault
        raise InvalidRequest(f"Invalid value for configuration {key}: {reason}", key=key)
    return config


def log_dirs_with_dynamic(broker: BrokerConfig, dynamic: Mapping[str, Value]) -> LogDirConfig:
    """The configuration of the log directories with dynamic values over the file's."""
    return _broker_with(LOG_DIR_KEYS, broker, dynamic).log_dir_config


def _broker_with(
    keys: frozenset[str], broker: BrokerConfig, dynamic: Mapping[str, Value]
) -> BrokerConfig:
    changes: dict[str, Any] = {
        BROKER_LEVEL[key].field: dynamic[key] for key in dynamic if key in keys
    }
    return replace(broker, **changes)


def cleaner_fault(config: LogCleanerConfig) -> tuple[str, str] | None:
    """The key that makes the cleaner impossible and why; None: none does."""
    threads = config.threads
    if threads and config.dedupe_buffer_size_bytes // threads <= _MEMORY_MIN_BYTES:
        reason = f"must be more than {_MEMORY_MIN_BYTES} for each of the {threads} "
        return "log.cleaner.dedupe.buffer.size", reason + "log.cleaner.threads"
    if not 0 < config.io_buffer_load_factor <= 1:
        return "log.cleaner.io.buffer.load.factor", "must be above 0 and at most 1"
    if not config.io_max_bytes_per_second > 0:
        return "log.cleaner.io.max.bytes.per.second", "must be above 0"
    return None


def describe_broker_config(
    values: Mapping[str, Value], given: Mapping[str, Value], dynamic: Mapping[str, Value]
) -> list[ConfigEntry]:
    """Every listed broker key, sorted. values: all keys as resolved at the start."""
    return [
        _entry(BROKER_LEVEL[key], values[key], given, dynamic)
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


def _entry(
    setting: Setting, value: Value, given: Mapping[str, Value], dynamic: Mapping[str, Value]
) -> ConfigEntry:
    topic_setting = DYNAMIC_KEYS.get(setting.key)
    keys = [synonym.key for synonym in topic_setting.synonyms] if topic_setting else [setting.key]
    chain = synonym_chain(keys, given, dynamic)
    is_read_only = setting.key not in ALTERABLE_KEYS
    return described(setting, dynamic.get(setting.key, value), chain, is_read_only=is_read_only)
