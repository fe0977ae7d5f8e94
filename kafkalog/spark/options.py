"""The options of the source: those of Spark's Kafka source, and how to reach kafkalog's logs.

Owns their names, defaults and precedence, and which ones contradict each other; the conditions are
those of the Kafka source. A time has precedence over times by partition, and these over offsets; an
option that is overruled is not checked. `access_of` reads the options that source and sink
share. It checks files and variables with secrets where the query is planned; tasks get their names
and read them again. A secret by value is refused. Everything else is pure. Any thread.
Source: KafkaSourceProvider of Spark 4.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkalog.client.messages import Address, Tls
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.integers import INT32_MAX
from kafkalog.spark.logs.object_store import StoreMissing, scheme_of, shown, trimmed
from kafkalog.spark.logs.secrets import CredentialsAt, SecretByValue, SecretMissing
from kafkalog.spark.logs.values import CHUNK_BYTES, TARGET_BYTES, Access
from kafkalog.spark.offsets import (
    EARLIEST,
    LATEST,
    PartitionOffsets,
    parse_offsets,
    parse_partitions,
    parse_times_ms,
)
from kafkalog.spark.option_values import InvalidOption, OptionValues, wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalog.format.topic_names import TopicPartition


ACCESS_OPTIONS = (
    "url",
    "path",
    "token",
    "tokenFile",
    "tokenEnv",
    "user",
    "passwordFile",
    "passwordEnv",
    "caFile",
    "clientCert",
    "clientKey",
)
_OF_DAEMONS = ACCESS_OPTIONS[2:]


def access_of(values: OptionValues, *, read_committed: bool = False) -> Access:
    """How to reach the logs. Raises InvalidOption, also for a file that cannot be read."""
    refuse_secrets(values.text)
    urls, paths = values.texts("url"), values.texts("path")
    if bool(urls) == bool(paths):
        raise InvalidOption(
            "Give either option url (http://host:port of a daemon) or option path (a log "
            "directory); several are separated by commas. A table of Spark's catalog has its "
            "options if it was created without columns (CREATE TABLE t USING kafkalog OPTIONS "
            "(...)), or from the comment of a column: ALTER TABLE t ALTER COLUMN value COMMENT "
            """'kafkalog {"url": "http://host:8082", "topic": "orders"}'"""
        )
    if paths:
        for name in values.given(_OF_DAEMONS):
            raise InvalidOption(f"Option {name} is for daemons: it needs option url, not path")
        once = dict.fromkeys(_absolute(path).rstrip("/") or "/" for path in paths)
        return Access(paths=tuple(once), read_committed=read_committed)
    addresses: dict[Address, str] = {}
    for url in urls:
        try:
            addresses.setdefault(Address.of(url), url)
        except ValueError as error:
            raise wrong("url", url, "http://host:port or https://host:port") from error
    tls = Tls(values.text("caFile"), values.text("clientCert"), values.text("clientKey"))
    return Access(
        urls=tuple(addresses.values()),
        credentials=_credentials(values),
        tls=None if tls == Tls() else tls,
        read_committed=read_committed,
    )


def refuse_secrets(value_of: Callable[[str], str | None]) -> None:
    """Raise InvalidOption for a secret among options: Spark's plans and logs would have it.

    ``value_of``: the value of an option by its name in lower case; None: it is not given.
    """
    if value_of("token") is not None or value_of("option.token") is not None:
        raise InvalidOption(
            "Option token is a secret, which Spark's plans, logs and pages would show: use "
            "tokenFile (a file on each machine) or tokenEnv (an environment variable, for "
            "executors spark.executorEnv.NAME)"
        )
    for url in (value_of("url") or "").split(","):
        if shown(url.strip()) != url.strip():
            raise InvalidOption(
                f"Option url has a password, {shown(url.strip())}, which Spark's plans, logs and "
                "pages would show: use user with passwordFile or passwordEnv"
            )
    for path in (value_of("path") or "").split(","):
        try:
            Access(paths=(path.strip(),)).by_reference()
        except SecretByValue as error:
            raise InvalidOption(f"Option path: {error.message}") from error


def _absolute(path: str) -> str:
    if scheme_of(path) is not None:
        try:
            return trimmed(path)
        except StoreMissing as error:
            raise wrong("path", path, "one with a bucket or host after the scheme") from error
    plain = path.removeprefix("file://")
    if not plain.startswith("/"):
        raise wrong(
            "path",
            path,
            "an absolute path, the same on every machine of the cluster, or one with the scheme of "
            "an object store",
        )
    return plain


def _credentials(values: OptionValues) -> CredentialsAt | None:
    given = values.given(("tokenFile", "tokenEnv", "user"))
    if len(given) > 1:
        raise InvalidOption(f"Options {' and '.join(given)} contradict each other: give one")
    user, passwords = values.text("user"), values.given(("passwordFile", "passwordEnv"))
    if (user is None) != (not passwords) or len(passwords) > 1:
        raise InvalidOption(
            "Options user and passwordFile need each other; option passwordEnv names an "
            "environment variable instead of a file"
        )
    if not given:
        return None
    name = passwords[0] if passwords else given[0]
    try:
        text = values.text(name) or ""
        is_file = name.endswith("File")
        if is_file:
            _check_secret(name, text)
        at = CredentialsAt(user, *((text, None) if is_file else (None, text)))
        at.read()
    except SecretMissing as error:
        raise InvalidOption(f"Option {name}: {error.message}") from error
    except ValueError as error:  # its text does not contain the secret
        raise InvalidOption(f"Option {given[0]}: {error}") from error
    return at


def _check_secret(name: str, file: str) -> None:
    """Raise InvalidOption unless a file has a secret in its first line."""
    try:
        lines = SystemFilesystem().read_file(file).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(name, file, "a readable text file") from error
    if not lines or not lines[0]:
        raise wrong(name, file, "a file whose first line is the secret")


COLUMN_NAMES = (
    *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
    "headers",
)
"""Those of Spark's Kafka source; the last one only if it is asked for."""

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_STARTINGS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDINGS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_OF_STREAMS = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "recreatedTopicStrategy",
)
_WITHOUT_EFFECT = ("groupIdPrefix", "kafkaConsumer.pollTimeoutMs")
SOURCE_OPTIONS = (
    *_SUBSCRIPTIONS,
    *_STARTINGS,
    "startingOffsetsByTimestampStrategy",
    *_ENDINGS,
    *_OF_STREAMS,
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "includeHeaders",
    "columns",
    *ACCESS_OPTIONS,
    "targetBytes",
    "chunkBytes",
    "checkCrcs",
    "maxConcurrentRequests",
    *_WITHOUT_EFFECT,
)
_REFUSED_OF_KAFKA = {
    "kafka.auto.offset.reset": "use startingOffsets; a restarted query continues where it stopped",
    "kafka.key.deserializer": "keys are binary; decode them with expressions of Spark",
    "kafka.value.deserializer": "values are binary; decode them with expressions of Spark",
    "kafka.enable.auto.commit": "the checkpoint of the query holds its offsets",
    "kafka.interceptor.classes": "they could change the records",
}
_ISOLATION = "kafka.isolation.level"
_TRIGGER_DELAY_MS = 15 * 60 * 1000
_TRIES = 10  # Kafka's is 3: a daemon checkpoints a directory's high watermark every 5 s
_TRY_INTERVAL_MS = 1000
_REQUESTS_MAX = 1000  # each is a thread of the driver
_SIZE_MAX = 1 << 30  # a column of an Arrow batch holds less than 2 GiB


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions of topics by name, of topics whose name matches, or single partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


class Extreme(enum.Enum):
    """The first or last offset of every partition."""

    EARLIEST = EARLIEST
    LATEST = LATEST


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition, or EARLIEST or LATEST."""

    option: str
    offsets: PartitionOffsets


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time, in every partition."""

    option: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record at or after a time for each partition."""

    option: str
    times_ms: PartitionOffsets


Limit = Extreme | AtOffsets | AtTime | AtTimes


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query reads, and how. Picklable.

    is_latest_without_match  a start time after every record is the end of the log, not an error
    fetch_offset_tries       look-ups of the ends of a stream's logs while one is below an offset
                             that was read
    restarts_recreated_topics   a stream reads a topic that was recreated from its start
    warnings                 one sentence for each option without effect
    """

    access: Access
    subscription: Subscription
    starting: Limit
    ending: Limit
    is_latest_without_match: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    restarts_recreated_topics: bool
    fetch_offset_tries: int
    fetch_offset_interval_ms: int
    include_headers: bool
    target_bytes: int
    chunk_bytes: int
    check_crcs: bool
    warnings: tuple[str, ...]


def batch_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of ``spark.read``. Raises InvalidOption."""
    values = OptionValues(given, SOURCE_OPTIONS)
    starting = _limit(values, *_STARTINGS, Extreme.EARLIEST)
    ending = _limit(values, *_ENDINGS, Extreme.LATEST)
    if starting is Extreme.LATEST or _holds(starting, LATEST):
        raise InvalidOption(
            "Option startingOffsets: a batch query cannot begin at the latest offset (-1), it "
            "would read nothing; give earliest, offsets or a time"
        )
    if ending is Extreme.EARLIEST or _holds(ending, EARLIEST):
        raise InvalidOption(
            "Option endingOffsets: a batch query cannot end at the earliest offset (-2), it would "
            "read nothing; give latest, offsets or a time"
        )
    _check_order(starting, ending)
    ignored = tuple(
        f"Option {name} is for streaming queries; it has no effect on this batch query"
        for name in values.given(_OF_STREAMS)
    )
    return _options(values, starting, ending, ignored)


def stream_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of ``spark.readStream``. Raises InvalidOption."""
    values = OptionValues(given, SOURCE_OPTIONS)
    for name in values.given(_ENDINGS):
        raise InvalidOption(f"Option {name}: a streaming query has no end")
    starting = _limit(values, *_STARTINGS, Extreme.LATEST)
    return _options(values, starting, Extreme.LATEST, ())


def column_names(given: Mapping[str, str]) -> tuple[str, ...]:
    """The columns of a query: options columns and includeHeaders. Raises InvalidOption."""
    values = OptionValues(given, SOURCE_OPTIONS)
    has_headers = values.boolean("includeHeaders", default=False)
    if "columns" not in values:
        return COLUMN_NAMES if has_headers else COLUMN_NAMES[:-1]
    known = {name.lower(): name for name in COLUMN_NAMES}
    named = [each.lower() for each in values.texts("columns")]
    chosen = tuple(dict.fromkeys(known[each] for each in named if each in known))
    if not chosen or len(chosen) < len(named):
        expected = f"some of {', '.join(COLUMN_NAMES)}, each once"
        raise wrong("columns", values.text("columns") or "", expected)
    if has_headers and COLUMN_NAMES[-1] not in chosen:
        raise InvalidOption("Option includeHeaders is true, but option columns has no headers")
    return chosen


def _options(
    values: OptionValues, starting: Limit, ending: Limit, ignored: tuple[str, ...]
) -> SourceOptions:
    offsets_max = values.integer("maxOffsetsPerTrigger", low=1)
    offsets_min = values.integer("minOffsetsPerTrigger", low=1)
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise InvalidOption(
            f"Option minOffsetsPerTrigger ({offsets_min}) is above maxOffsetsPerTrigger "
            f"({offsets_max}): no batch can satisfy both"
        )
    for name in values.given(_REFUSED_OF_KAFKA):
        raise InvalidOption(f"Option {name} is not supported: {_REFUSED_OF_KAFKA[name]}")
    isolation = values.word(_ISOLATION, "read_uncommitted", ("read_uncommitted", "read_committed"))
    strategy = values.word("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
    fails = values.boolean("failOnDataLoss", default=True)
    recreated = ("error", "earliest")
    for_recreated = values.word("recreatedTopicStrategy", recreated[not fails], recreated)
    interval_ms = values.integer("fetchOffset.retryIntervalMs", low=0)
    unused = [name for name in values.of_kafka() if name != _ISOLATION]
    unused += values.given(_WITHOUT_EFFECT)
    access = access_of(values, read_committed=isolation == "read_committed")
    requests_max = values.integer("maxConcurrentRequests", low=1, high=_REQUESTS_MAX)
    if requests_max is not None:
        if not any(scheme_of(path) for path in access.paths):
            raise InvalidOption(
                "Option maxConcurrentRequests is for object stores: it needs option path with a "
                "scheme, as s3://"
            )
        access = replace(access, max_concurrent_requests=requests_max)
    if unused:
        ignored += (f"Options of Kafka's client without effect here: {', '.join(unused)}",)
    return SourceOptions(
        access=access,
        subscription=_subscription(values),
        starting=starting,
        ending=ending,
        is_latest_without_match=strategy == "latest",
        max_offsets_per_trigger=offsets_max,
        min_offsets_per_trigger=offsets_min,
        max_trigger_delay_ms=values.duration_ms("maxTriggerDelay", _TRIGGER_DELAY_MS),
        min_partitions=values.integer("minPartitions", low=1, high=INT32_MAX),
        max_records_per_partition=values.integer("maxRecordsPerPartition", low=1),
        fail_on_data_loss=fails,
        restarts_recreated_topics=for_recreated == "earliest",
        fetch_offset_tries=values.integer("fetchOffset.numRetries", low=1) or _TRIES,
        fetch_offset_interval_ms=_TRY_INTERVAL_MS if interval_ms is None else interval_ms,
        include_headers=values.boolean("includeHeaders", default=False),
        target_bytes=values.size_bytes("targetBytes", TARGET_BYTES, 1, 1 << 40),
        chunk_bytes=values.size_bytes("chunkBytes", CHUNK_BYTES, 1 << 10, _SIZE_MAX),
        check_crcs=values.boolean("checkCrcs", default=True),
        warnings=ignored,
    )


def _subscription(values: OptionValues) -> Subscription:
    given = values.given(_SUBSCRIPTIONS)
    if len(given) != 1:
        found = f", not {' and '.join(given)}" if given else ""
        raise InvalidOption(f"Give one of the options {', '.join(_SUBSCRIPTIONS)}{found}")
    (name,) = given
    text = values.text(name) or ""
    if name == "assign":
        partitions = parse_partitions(name, text)
        if not partitions:
            raise wrong(name, text, "one or more partitions")
        return Subscription(partitions=partitions)
    if name == "subscribe":
        topics = values.texts(name)
        if not topics:
            raise wrong(name, text, "one topic, or several separated by commas")
        return Subscription(topics=tuple(sorted(set(topics))))
    if not text:
        raise wrong(name, text, "a regular expression")
    try:
        re.compile(text)
    except re.error as error:
        raise wrong(name, text, f"a regular expression ({error})") from error
    return Subscription(pattern=text)


def _limit(
    values: OptionValues, of_time: str, of_times: str, of_offsets: str, default: Limit
) -> Limit:
    time_ms = values.integer(of_time, low=0)
    if time_ms is not None:
        return AtTime(of_time, time_ms)
    text = values.text(of_times)
    if text is not None:
        return AtTimes(of_times, parse_times_ms(of_times, text))
    text = values.text(of_offsets)
    if text is None:
        return default
    for extreme in Extreme:
        if text.lower() == extreme.name.lower():
            return extreme
    return AtOffsets(of_offsets, parse_offsets(of_offsets, text))


def _holds(limit: Limit, offset: int) -> bool:
    return isinstance(limit, AtOffsets) and offset in limit.offsets.values()


def _check_order(starting: Limit, ending: Limit) -> None:
    """Start and end name the same partitions, and no end is before its start; InvalidOption."""
    if isinstance(starting, AtOffsets) and isinstance(ending, AtOffsets):
        first, last = starting.offsets, ending.offsets
    elif isinstance(starting, AtTimes) and isinstance(ending, AtTimes):
        first, last = starting.times_ms, ending.times_ms
    else:
        return
    both = f"Options {starting.option} and {ending.option}"
    if first.keys() != last.keys():
        only = ", ".join(map(str, sorted(first.keys() ^ last.keys())))
        raise InvalidOption(f"{both} name different partitions: only one of them has {only}")
    for at in sorted(first):
        if first[at] > last[at] >= 0:
            raise InvalidOption(f"{both}: {at} ends ({last[at]}) before it begins ({first[at]})")
