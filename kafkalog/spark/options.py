"""The options of the source: those of Spark's Kafka source, and where kafkalog's logs are.

Owns names, defaults, precedence and what contradicts what; the sentences are ours, the conditions
the Kafka source's. A time goes before times by partition, these before offsets; what is passed
over is not looked at. Pure but for files with secrets (`access_options`); any thread.
Source: KafkaSourceProvider of Spark 4.

Where the logs are and who asks: the options that the source and the sink have in common.

Owns their names, and how files with secrets become the credentials of an `Access`. Files are read
where the query is planned, not where its tasks run: they travel with the tasks.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.client.messages import Address, Basic, Bearer, Tls
from kafkalog.env.system_filesystem import SystemFilesystem
from kafkalog.format.integers import INT32_MAX
from kafkalog.spark.logs.object_store import StoreMissing, scheme_of, trimmed
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
    from collections.abc import Mapping

    from kafkalog.format.topic_names import TopicPartition


ACCESS_OPTIONS = (
    "url",
    "path",
    "token",
    "tokenFile",
    "user",
    "passwordFile",
    "caFile",
    "clientCert",
    "clientKey",
)
_OF_DAEMONS = ACCESS_OPTIONS[2:]


def access_of(values: OptionValues, *, read_committed: bool = False) -> Access:
    """Raises InvalidOption, also for a file that cannot be read."""
    urls, paths = values.texts("url"), values.texts("path")
    if bool(urls) == bool(paths):
        raise InvalidOption(
            "Say where the logs are: either option url (http://host:port of a daemon) or option "
            "path (a log directory), several between commas"
        )
    if paths:
        for name in values.given(_OF_DAEMONS):
            raise InvalidOption(f"Option {name} is for daemons: it needs option url, not path")
        once = dict.fromkeys(_absolute(path).rstrip("/") or "/" for path in paths)
        return Access(paths=tuple(once), read_committed=read_committed)
    addresses: dict[Address, str] = {}
    for url in urls:
        addresses.setdefault(_address(url), url)
    tls = Tls(values.text("caFile"), values.text("clientCert"), values.text("clientKey"))
    return Access(
        urls=tuple(addresses.values()),
        credentials=_credentials(values),
        tls=None if tls == Tls() else tls,
        read_committed=read_committed,
    )


def _absolute(path: str) -> str:
    if scheme_of(path) is not None:
        try:
            return trimmed(path)
        except StoreMissing as error:
            raise wrong("path", path, "one with a bucket or host behind the scheme") from error
    plain = path.removeprefix("file://")
    if not plain.startswith("/"):
        raise wrong(
            "path",
            path,
            "an absolute path, the same on every machine of the cluster, or one with the scheme of "
            "an object store",
        )
    return plain


def _address(url: str) -> Address:
    try:
        return Address.of(url)
    except ValueError as error:
        raise wrong("url", url, "http://host:port or https://host:port") from error


def _credentials(values: OptionValues) -> Basic | Bearer | None:
    given = values.given(("token", "tokenFile", "user"))
    if len(given) > 1:
        raise InvalidOption(f"Options {' and '.join(given)} contradict each other: give one")
    user, password_file = values.text("user"), values.text("passwordFile")
    if (user is None) != (password_file is None):
        raise InvalidOption("Options user and passwordFile need each other")
    try:
        if user is not None and password_file is not None:
            return Basic(user, _secret("passwordFile", password_file))
        token = values.text("token")
        token_file = values.text("tokenFile")
        if token_file is not None:
            token = _secret("tokenFile", token_file)
        return None if token is None else Bearer(token)
    except ValueError as error:  # says nothing of the secret
        raise InvalidOption(f"Option {given[0]}: {error}") from error


def _secret(name: str, file: str) -> str:
    """The first line of a file."""
    try:
        lines = SystemFilesystem().read_file(file).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(name, file, "a file of text that can be read") from error
    if not lines or not lines[0]:
        raise wrong(name, file, "a file whose first line is the secret")
    return lines[0]


_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_ENDINGS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_OF_STREAMS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_WITHOUT_EFFECT = ("groupIdPrefix", "kafkaConsumer.pollTimeoutMs")
SOURCE_OPTIONS = (
    *_SUBSCRIPTIONS,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingOffsets",
    *_ENDINGS,
    *_OF_STREAMS,
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "includeHeaders",
    *ACCESS_OPTIONS,
    "targetBytes",
    "chunkBytes",
    "checkCrcs",
    *_WITHOUT_EFFECT,
)
_REFUSED_OF_KAFKA = {
    "kafka.auto.offset.reset": "use startingOffsets; a query that goes on begins where it stopped",
    "kafka.key.deserializer": "keys come as binary, to be decoded by expressions of Spark",
    "kafka.value.deserializer": "values come as binary, to be decoded by expressions of Spark",
    "kafka.enable.auto.commit": "the checkpoint of the query holds its offsets",
    "kafka.interceptor.classes": "they could change what is read",
}
_ISOLATION = "kafka.isolation.level"
_TRIGGER_DELAY_MS = 15 * 60 * 1000
_TRIES = 10  # Kafka's is 3: a running daemon writes a directory's high watermark every 5 s
_TRY_INTERVAL_MS = 1000
_SIZE_MAX = 1 << 30  # a column of an Arrow batch holds less than 2 GiB


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions: of topics by name, of topics whose name has a match, or these."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


class Extreme(enum.Enum):
    """Every partition's first or last offset."""

    EARLIEST = EARLIEST
    LATEST = LATEST


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset of each partition, EARLIEST or LATEST."""

    option: str
    offsets: PartitionOffsets


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time, in every partition."""

    option: str
    time_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The same with a time for each partition."""

    option: str
    times_ms: PartitionOffsets


Limit = Extreme | AtOffsets | AtTime | AtTimes


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query wants to read, and how. Picklable.

    is_latest_without_match  where a time of the start lies behind every record: begin at the end
    fetch_offset_tries       of looking for the ends of a stream's logs, when one lies before what
                             was read; so long apart
    warnings                 sentences about options that change nothing
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
    fetch_offset_tries: int
    fetch_offset_interval_ms: int
    include_headers: bool
    target_bytes: int
    chunk_bytes: int
    check_crcs: bool
    warnings: tuple[str, ...]


def batch_options(given: Mapping[str, str]) -> SourceOptions:
    """Of ``spark.read``. Raises InvalidOption."""
    values = OptionValues(given, SOURCE_OPTIONS)
    starting = _starting(values, Extreme.EARLIEST)
    ending = _ending(values)
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
        f"Option {name} is of streaming queries; this batch query does without it"
        for name in values.given(_OF_STREAMS)
    )
    return _options(values, starting, ending, ignored)


def stream_options(given: Mapping[str, str]) -> SourceOptions:
    """Of ``spark.readStream``. Raises InvalidOption."""
    values = OptionValues(given, SOURCE_OPTIONS)
    for name in values.given(_ENDINGS):
        raise InvalidOption(f"Option {name}: a streaming query has no end")
    return _options(values, _starting(values, Extreme.LATEST), Extreme.LATEST, ())


def wants_headers(given: Mapping[str, str]) -> bool:
    """Option includeHeaders, before it is known what sort of query it is. Raises InvalidOption."""
    return OptionValues(given, SOURCE_OPTIONS).boolean("includeHeaders", default=False)


def _options(
    values: OptionValues, starting: Limit, ending: Limit, ignored: tuple[str, ...]
) -> SourceOptions:
    offsets_max = values.integer("maxOffsetsPerTrigger", low=1)
    offsets_min = values.integer("minOffsetsPerTrigger", low=1)
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise InvalidOption(
            f"Option minOffsetsPerTrigger ({offsets_min}) is above maxOffsetsPerTrigger "
            f"({offsets_max}): no batch could have both"
        )
    for name in values.given(_REFUSED_OF_KAFKA):
        raise InvalidOption(f"Option {name} is not possible: {_REFUSED_OF_KAFKA[name]}")
    isolation = values.word(_ISOLATION, "read_uncommitted", ("read_uncommitted", "read_committed"))
    strategy = values.word("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
    return SourceOptions(
        access=access_of(values, read_committed=isolation == "read_committed"),
        subscription=_subscription(values),
        starting=starting,
        ending=ending,
        is_latest_without_match=strategy == "latest",
        max_offsets_per_trigger=offsets_max,
        min_offsets_per_trigger=offsets_min,
        max_trigger_delay_ms=values.duration_ms("maxTriggerDelay", _TRIGGER_DELAY_MS),
        min_partitions=values.integer("minPartitions", low=1, high=INT32_MAX),
        max_records_per_partition=values.integer("maxRecordsPerPartition", low=1),
        fail_on_data_loss=values.boolean("failOnDataLoss", default=True),
        fetch_offset_tries=values.integer("fetchOffset.numRetries", low=1) or _TRIES,
        fetch_offset_interval_ms=_interval_ms(values),
        include_headers=values.boolean("includeHeaders", default=False),
        target_bytes=values.size_bytes("targetBytes", TARGET_BYTES, 1, 1 << 40),
        chunk_bytes=values.size_bytes("chunkBytes", CHUNK_BYTES, 1 << 10, _SIZE_MAX),
        check_crcs=values.boolean("checkCrcs", default=True),
        warnings=(*ignored, *_notes(values)),
    )


def _interval_ms(values: OptionValues) -> int:
    given_ms = values.integer("fetchOffset.retryIntervalMs", low=0)
    return _TRY_INTERVAL_MS if given_ms is None else given_ms


def _notes(values: OptionValues) -> list[str]:
    """On what a query that was written for Kafka brings along."""
    names = [name for name in values.of_kafka() if name != _ISOLATION]
    names += values.given(_WITHOUT_EFFECT)
    if not names:
        return []
    return [f"Of Kafka's client, without effect here: {', '.join(names)}"]


def _subscription(values: OptionValues) -> Subscription:
    given = values.given(_SUBSCRIPTIONS)
    if len(given) != 1:
        found = f", not {' and '.join(given)}" if given else ""
        raise InvalidOption(
            f"Say what to read by one of the options {', '.join(_SUBSCRIPTIONS)}{found}"
        )
    (name,) = given
    text = values.text(name) or ""
    if name == "assign":
        partitions = parse_partitions(name, text)
        if not partitions:
            raise wrong(name, text, "one partition or more")
        return Subscription(partitions=partitions)
    if name == "subscribe":
        topics = values.texts(name)
        if not topics:
            raise wrong(name, text, "a topic, several between commas")
        return Subscription(topics=tuple(sorted(set(topics))))
    if not text:
        raise wrong(name, text, "a regular expression")
    try:
        re.compile(text)
    except re.error as error:
        raise wrong(name, text, f"a regular expression ({error})") from error
    return Subscription(pattern=text)


def _starting(values: OptionValues, default: Limit) -> Limit:
    return _limit(
        values, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets", default
    )


def _ending(values: OptionValues) -> Limit:
    return _limit(values, *_ENDINGS, Extreme.LATEST)


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
    """Both of one sort name the same partitions, and no end lies before its start."""
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
