"""Goal: the source takes the options and offsets of Spark's Kafka source, so that checkpoints can
be exchanged, says why it refuses one, and docs/reference/spark.md has them all.
Method: tables of options and texts of offsets; the page.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog.client.messages import Basic, Bearer, Tls
from kafkalog.format.topic_names import TopicPartition
from kafkalog.spark.logs.secrets import CredentialsAt
from kafkalog.spark.logs.values import OffsetRange
from kafkalog.spark.offsets import (
    WrongCheckpoint,
    document_of,
    lag_of,
    offsets_of,
    parse_offsets,
    rate_limited,
    recreated,
    split_ranges,
    topic_ids_of,
)
from kafkalog.spark.option_values import InvalidOption
from kafkalog.spark.options import (
    SOURCE_OPTIONS,
    AtOffsets,
    AtTime,
    AtTimes,
    Extreme,
    batch_options,
    column_names,
    refuse_secrets,
    stream_options,
)
from kafkalog.spark.sink.options import sink_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.spark.options import SourceOptions


PLACE = {"path": "/data", "subscribe": "t"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(**given: str) -> SourceOptions:
    return batch_options(PLACE | given)


def stream(**given: str) -> SourceOptions:
    return stream_options(PLACE | given)


def test_defaults() -> None:
    options = batch()
    assert (options.starting, options.ending) == (Extreme.EARLIEST, Extreme.LATEST)
    assert stream().starting is Extreme.LATEST
    assert options.access.paths == ("/data",)
    assert not options.access.read_committed
    assert options.fail_on_data_loss
    assert not options.restarts_recreated_topics
    assert options.check_crcs
    assert not options.include_headers
    assert options.max_trigger_delay_ms == 900_000
    assert (options.target_bytes, options.chunk_bytes) == (128 << 20, 8 << 20)
    assert options.warnings == ()


def test_a_time_goes_before_times_and_these_before_offsets() -> None:
    """The Kafka source's precedence; what is passed over is not even parsed."""
    time = batch(startingtimestamp="5", startingoffsetsbytimestamp="{", startingoffsets="{")
    assert time.starting == AtTime("startingTimestamp", 5)
    times = batch(startingoffsetsbytimestamp='{"t":{"0":7}}', startingoffsets="{")
    assert times.starting == AtTimes("startingOffsetsByTimestamp", {T0: 7})
    offsets = batch(startingoffsets=' {"t":{"0":-2,"1":12}} ')
    assert offsets.starting == AtOffsets("startingOffsets", {T0: -2, T1: 12})
    assert batch(endingtimestamp="9", endingoffsets="{").ending == AtTime("endingTimestamp", 9)
    assert batch(startingoffsets="Earliest").starting is Extreme.EARLIEST


def test_what_to_subscribe_to() -> None:
    assert batch(subscribe=" b , a,,b").subscription.topics == ("a", "b")
    pattern = batch_options({"path": "/d", "subscribepattern": "a{1,2}|b.*"})
    assert pattern.subscription.pattern == "a{1,2}|b.*"
    assign = batch_options({"path": "/d", "assign": '{"t":[1,0,1]}'})
    assert assign.subscription.partitions == (T0, T1)


def test_access_to_daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3\nnot this\n")
    urls = {"url": "https://a:1, https://b:2", "subscribe": "t"}
    tls = {"cafile": "/ca", "clientcert": "/cert", "clientkey": "/key"}
    access = batch_options(urls | tls | {"tokenfile": str(secret)}).access
    assert access.urls == ("https://a:1", "https://b:2")
    assert access.credentials == CredentialsAt(file=str(secret))
    assert access.credentials.read() == Bearer("s3")
    assert access.tls == Tls("/ca", "/cert", "/key")
    basic = batch_options(urls | {"user": "u", "passwordfile": str(secret)}).access
    assert basic.credentials == CredentialsAt("u", str(secret))
    assert basic.credentials.read() == Basic("u", "s3")
    monkeypatch.setenv("KAFKALOG_SECRET", "s3")
    token = batch_options(urls | {"tokenenv": "KAFKALOG_SECRET"}).access
    assert token.credentials == CredentialsAt(variable="KAFKALOG_SECRET")
    assert token.credentials.read() == Bearer("s3")
    password = batch_options(urls | {"user": "u", "passwordenv": "KAFKALOG_SECRET"}).access
    assert password.credentials == CredentialsAt("u", variable="KAFKALOG_SECRET")
    for each in (access, basic, token, password):
        assert b"s3" not in pickle.dumps(each.by_reference())
    committed = batch(**{"kafka.isolation.level": "read_committed"})
    assert committed.access.read_committed


def test_numbers_sizes_and_durations() -> None:
    options = stream(
        maxoffsetspertrigger="1000",
        minoffsetspertrigger="10",
        maxtriggerdelay="2h",
        minpartitions="8",
        maxrecordsperpartition="5000",
        failondataloss="FALSE",
        includeheaders="true",
        targetbytes="64 MiB",
        chunkbytes="4m",
        checkcrcs="false",
        startingoffsetsbytimestampstrategy="LATEST",
        **{"fetchoffset.numretries": "2", "fetchoffset.retryintervalms": "0"},
    )
    assert (options.fetch_offset_tries, options.fetch_offset_interval_ms) == (2, 0)
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (1000, 10)
    assert options.max_trigger_delay_ms == 7_200_000
    assert (options.min_partitions, options.max_records_per_partition) == (8, 5000)
    assert not options.fail_on_data_loss
    assert options.include_headers
    assert (options.target_bytes, options.chunk_bytes) == (64 << 20, 4 << 20)
    assert not options.check_crcs
    assert options.is_latest_without_match
    assert stream(maxtriggerdelay="1500").max_trigger_delay_ms == 1500


def test_a_recreated_topic() -> None:
    """An error by default; without errors for losses it is read from its start."""
    lenient = {"failondataloss": "false"}
    assert stream(recreatedtopicstrategy="earliest").restarts_recreated_topics
    assert stream(**lenient).restarts_recreated_topics
    assert not stream(**lenient, recreatedtopicstrategy="error").restarts_recreated_topics
    assert "streaming" in batch(recreatedtopicstrategy="earliest").warnings[0]


def test_what_changes_nothing_is_told_once() -> None:
    options = batch(
        **{
            "kafka.bootstrap.servers": "b:9092",
            "kafka.group.id": "g",
            "groupidprefix": "x",
            "maxoffsetspertrigger": "5",
        }
    )
    assert options.warnings == (
        "Option maxOffsetsPerTrigger is for streaming queries; "
        "it has no effect on this batch query",
        "Options of Kafka's client without effect here: kafka.bootstrap.servers, kafka.group.id, "
        "groupIdPrefix",
    )


def test_columns_are_known_before_the_rest_is_looked_at() -> None:
    all_but_headers = column_names({"startingoffsets": "{"})
    assert all_but_headers[-1] == "timestampType"
    assert column_names({"includeheaders": "true"}) == (*all_but_headers, "headers")
    assert column_names({"columns": " OFFSET,timestamptype , headers"}) == (
        *("offset", "timestampType", "headers"),
    )
    with pytest.raises(InvalidOption, match="did you mean includeHeaders"):
        column_names({"includeheader": "true"})
    for given in ("offset,size", "offset,offset", " , "):
        with pytest.raises(InvalidOption, match=r"columns is .* some of key, value, topic,"):
            column_names({"columns": given})
    with pytest.raises(InvalidOption, match="columns has no headers"):
        column_names({"columns": "offset", "includeheaders": "true"})


REFUSED: list[tuple[Callable[..., SourceOptions], dict[str, str], str]] = [
    (
        batch,
        {"startingoffset": "earliest"},
        "no option startingoffset; did you mean startingOffsets.$",
    ),
    (batch, {"topics": "t"}, "no option topics; see docs/reference/spark.md"),
    (batch, {"assign": '{"t":[0]}'}, "one of the options .*, not subscribe and assign"),
    (batch, {"subscribe": " , "}, "Option subscribe is ','.*one topic"),
    (
        batch,
        {"startingoffsets": "latest"},
        "startingOffsets: a batch query cannot begin at the latest",
    ),
    (batch, {"startingoffsets": '{"t":{"0":-1}}'}, "startingOffsets: a batch query cannot begin"),
    (
        batch,
        {"endingoffsets": "earliest"},
        "endingOffsets: a batch query cannot end at the earliest",
    ),
    (batch, {"endingoffsets": '{"t":{"0":-2}}'}, "endingOffsets: a batch query cannot end"),
    (stream, {"endingoffsets": "latest"}, "endingOffsets: a streaming query has no end"),
    (stream, {"endingtimestamp": "5"}, "endingTimestamp: a streaming query has no end"),
    (stream, {"endingoffsetsbytimestamp": "{}"}, "endingOffsetsByTimestamp: a streaming query"),
    (batch, {"startingoffsets": "{"}, r"startingOffsets is '\{', but it must be JSON as"),
    (batch, {"startingoffsets": '{"t":{"0":-3}}'}, "startingOffsets .* must be JSON as"),
    (batch, {"startingoffsets": '{"t":{"0":1.5}}'}, "startingOffsets .* must be JSON as"),
    (batch, {"startingoffsets": '{"t":{"0":1,"0":2}}'}, "startingOffsets .* must be JSON as"),
    (batch, {"startingoffsets": '{"t":[0]}'}, "startingOffsets .* must be JSON as"),
    (batch, {"startingoffsets": '{"t":{"x":1}}'}, "startingOffsets .* must be JSON as"),
    (batch, {"startingoffsets": '{"t":{"0":true}}'}, "startingOffsets .* must be JSON as"),
    (batch, {"startingoffsets": "[1]"}, "startingOffsets .* must be JSON as"),
    (batch, {"startingtimestamp": "soon"}, "startingTimestamp is 'soon', but .* whole number"),
    (batch, {"startingoffsetsbytimestamp": '{"t":{"0":-1}}'}, "startingOffsetsByTimestamp .* JSON"),
    (
        batch,
        {"startingoffsets": '{"t":{"0":5}}', "endingoffsets": '{"t":{"1":5}}'},
        "startingOffsets and endingOffsets name different partitions: .* t-0, t-1",
    ),
    (
        batch,
        {"startingoffsets": '{"t":{"0":5}}', "endingoffsets": '{"t":{"0":4}}'},
        r"startingOffsets and endingOffsets: t-0 ends \(4\) before it begins \(5\)",
    ),
    (
        batch,
        {
            "startingoffsetsbytimestamp": '{"t":{"0":5}}',
            "endingoffsetsbytimestamp": '{"t":{"0":4}}',
        },
        r"ByTimestamp: t-0 ends \(4\) before it begins \(5\)",
    ),
    (stream, {"maxoffsetspertrigger": "0"}, "maxOffsetsPerTrigger is '0'"),
    (
        stream,
        {"maxoffsetspertrigger": "5", "minoffsetspertrigger": "6"},
        r"minOffsetsPerTrigger \(6\) is above maxOffsetsPerTrigger \(5\)",
    ),
    (stream, {"maxtriggerdelay": "5 weeks"}, "maxTriggerDelay is '5 weeks', but .* a duration"),
    (batch, {"minpartitions": "-1"}, "minPartitions is '-1'"),
    (batch, {"maxrecordsperpartition": "x"}, "maxRecordsPerPartition is 'x'"),
    (batch, {"failondataloss": "no"}, "failOnDataLoss is 'no', but it must be true or false"),
    (stream, {"recreatedtopicstrategy": "latest"}, "Strategy is 'latest'.* error or earliest"),
    (batch, {"chunkbytes": "2g"}, "chunkBytes is '2g', but it must be a size"),
    (batch, {"targetbytes": "big"}, "targetBytes is 'big', but it must be a size"),
    (batch, {"startingoffsetsbytimestampstrategy": "x"}, "must be error or latest"),
    (batch, {"kafka.isolation.level": "dirty"}, "kafka.isolation.level is 'dirty'"),
    (batch, {"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset is not supported: use"),
    (batch, {"kafka.key.deserializer": "x"}, "kafka.key.deserializer is not supported"),
    (batch, {"kafka.value.deserializer": "x"}, "kafka.value.deserializer is not supported"),
    (batch, {"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit is not supported"),
    (batch, {"kafka.interceptor.classes": "x"}, "kafka.interceptor.classes is not supported"),
    (batch, {"path": "data"}, "path is 'data', but it must be an absolute path"),
    (batch, {"url": "http://a:1"}, "either option url .* or option path"),
    (batch, {"tokenfile": "x"}, "Option tokenFile is for daemons"),
]


@pytest.mark.parametrize(("parse", "given", "message"), REFUSED, ids=lambda each: str(each)[:60])
def test_refused(parse: Callable[..., SourceOptions], given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        parse(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "Give one of the options subscribe, subscribePattern, assign$"),
        ({"subscribepattern": "("}, "subscribePattern is .* a regular expression"),
        ({"subscribepattern": ""}, "subscribePattern is .* a regular expression"),
        ({"assign": "t"}, "assign is 't', but it must be JSON"),
        ({"assign": '{"t":[]}'}, "assign .* one or more partitions"),
        ({"assign": '{"t":[-1]}'}, "assign .* JSON"),
    ],
)
def test_no_subscription(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        batch_options({"path": "/data"} | given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": "ftp://x"}, "url is 'ftp://x', but it must be http"),
        ({"url": "http://x", "tokenenv": "A", "user": "u"}, "tokenEnv and user contradict"),
        ({"url": "http://x", "user": "u"}, "user and passwordFile need each other"),
        ({"url": "http://x", "passwordfile": "/x"}, "user and passwordFile need each other"),
        ({"url": "http://x", "tokenenv": "NO_SUCH"}, "tokenEnv: .* NO_SUCH is not set"),
        ({"url": "http://x", "user": "u", "passwordenv": "NO_SUCH"}, "NO_SUCH is not set"),
        ({"url": "http://x", "tokenfile": "/a", "tokenenv": "A"}, "tokenEnv contradict"),
        (
            {"url": "http://x", "user": "u", "passwordfile": "/a", "passwordenv": "A"},
            "user and passwordFile need each other",
        ),
        ({"url": "http://x", "tokenfile": "/no/such"}, "tokenFile is '/no/such'.*readable"),
        ({}, "Give either option url"),
        ({"path": "s3://"}, "path is 's3://', but it must be one with a bucket or host after"),
    ],
)
def test_no_access(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        batch_options({"subscribe": "t"} | given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"url": "http://x", "token": "s3cret"},
            "Option token is a secret.*use tokenFile.*tokenEnv",
        ),
        ({"path": "/a", "token": "s3cret"}, "Option token is a secret"),
        ({"option.token": "s3cret"}, "Option token is a secret"),  # of a table of the catalog
        (
            {"url": "http://x, http://u:s3cret@y"},
            r"url has a password, http://u:\*\*\*@y, .*passwordEnv",
        ),
        ({"path": "/a,sftp://u:s3cret@h/logs"}, r"path: The address sftp://u:\*\*\*@h/logs has"),
    ],
)
def test_a_secret_by_value_is_refused(given: dict[str, str], message: str) -> None:
    """Source and sink, before there is a plan; the message does not repeat it."""
    with pytest.raises(InvalidOption, match=message) as refused:
        refuse_secrets(given.get)
    assert "s3cret" not in str(refused.value)
    for checked in (batch_options, stream_options, sink_options):
        with pytest.raises(InvalidOption) as refused:
            checked({"subscribe": "t", "topic": "t"} | given)
        assert "s3cret" not in str(refused.value)


def test_a_token_of_other_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "ä")
    with pytest.raises(InvalidOption, match="tokenEnv: A token is printable ASCII"):
        batch_options({"subscribe": "t", "url": "http://x", "tokenenv": "TOKEN"})


def test_a_place_that_is_named_twice_is_one() -> None:
    paths = batch_options({"subscribe": "t", "path": "/a,/b,/a/,/a"}).access
    assert paths.paths == ("/a", "/b")
    urls = batch_options({"subscribe": "t", "url": "http://x,http://y,http://x/,x:8082"}).access
    assert urls.urls == ("http://x", "http://y")


def test_an_empty_secret_is_none(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("\n")
    with pytest.raises(InvalidOption, match=r"tokenFile .* first line is the secret"):
        batch_options({"subscribe": "t", "url": "http://x", "tokenfile": str(file)})


A0, A2, A10, B0 = (TopicPartition(*at) for at in (("a", 0), ("a", 2), ("a", 10), ("b", 0)))


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("t", number, 100, 100 + size) for number, size in enumerate(sizes)]


def shape(split: list[OffsetRange]) -> list[tuple[int, int]]:
    """(partition, offsets)."""
    return [(each.partition, each.to_offset - each.from_offset) for each in split]


def test_the_text_is_sorted_by_number() -> None:
    document = document_of({B0: 4, A10: 3, A0: 1, A2: 2})
    assert json.dumps(document, separators=(",", ":")) == '{"a":{"0":1,"2":2,"10":3},"b":{"0":4}}'


def test_topic_ids_are_names_without_partitions() -> None:
    """Who knows no ids sees the same offsets: older versions, startingOffsets."""
    text = json.dumps(document_of({A0: 1, B0: 4}, {"a": "A_-1", "c": "C"}))
    assert text == '{"a": {"0": 1}, "b": {"0": 4}, "a@A_-1": {}}'
    assert topic_ids_of(json.loads(text)) == {"a": "A_-1"}
    assert offsets_of(json.loads(text)) == parse_offsets("startingOffsets", text) == {A0: 1, B0: 4}
    assert recreated({"a": "1", "b": "2"}, {"a": "3", "b": "2", "c": "4"}) == ["a"]
    assert recreated({"a": "1"}, {}) == [], "a topic without an id"


def test_any_order_is_understood() -> None:
    """A checkpoint of the Kafka source, whose order is another."""
    assert offsets_of(json.loads('{"b":{"0":4},"a":{"10":3,"0":1}}')) == {A0: 1, A10: 3, B0: 4}


@pytest.mark.parametrize(
    "text",
    [
        "12345",
        "[1]",
        "null",
        '{"a":5}',
        '{"a":{"x":1}}',
        *(f'{{"a":{{"0":{number}}}}}' for number in ('"780"', "-5", "null", "1.5", "true")),
    ],
)
def test_a_checkpoint_that_is_none_of_ours_is_named(text: str) -> None:
    with pytest.raises(WrongCheckpoint, match=r"The checkpoint has .* new checkpointLocation"):
        offsets_of(json.loads(text))


def test_numbers_may_be_text() -> None:
    """What Jackson takes in the Kafka source."""
    assert parse_offsets("startingOffsets", '{"a":{"0":"5","2":-1}}') == {A0: 5, A2: -1}


def test_a_limit_is_shared_by_lag() -> None:
    """Floor of the share, ceiling below one, never behind the end."""
    start = {A0: 10, A2: 0, A10: 7, B0: 5}
    latest = {A0: 610, A2: 300, A10: 8, B0: 5}
    ends = rate_limited(100, start, latest)
    assert ends == {A0: 10 + 66, A2: 33, A10: 8, B0: 5}


def test_a_partition_that_went_back_stays_at_its_end() -> None:
    """An end below the start is left for who reports it."""
    assert rate_limited(5, {A0: 10, B0: 0}, {A0: 3, B0: 100}) == {A0: 3, B0: 5}


def test_lag_counts_new_partitions_from_zero() -> None:
    """MinOffsetsPerTrigger as the Kafka source counts."""
    assert lag_of({A0: 10}, {A0: 15, B0: 7}) == 12


def test_without_wishes_a_range_is_a_task() -> None:
    assert shape(split_ranges(ranges(5, 0, 7), None, None)) == [(0, 5), (2, 7)]
    assert shape(split_ranges(ranges(5, 7), 2, None)) == [(0, 5), (1, 7)]


def test_large_ranges_are_split_to_the_wanted_count() -> None:
    parts = shape(split_ranges(ranges(1, 1, 98), 10, None))
    assert parts[:2] == [(0, 1), (1, 1)]
    assert [size for _, size in parts[2:]] == [12, 12, 12, 12, 12, 12, 13, 13]
    assert shape(split_ranges(ranges(10), 4, None)) == [(0, 2), (0, 2), (0, 3), (0, 3)]
    assert shape(split_ranges(ranges(50, 50), 3, None)) == [(0, 25), (0, 25), (1, 25), (1, 25)]


def test_records_a_task_are_bounded() -> None:
    assert shape(split_ranges(ranges(10, 3), None, 4)) == [(0, 3), (0, 3), (0, 4), (1, 3)]
    split = split_ranges(ranges(10, 3), 8, 4)
    assert len(split) >= 7
    assert max(size for _, size in shape(split)) <= 4


PAGE = Path(__file__).resolve().parents[2] / "docs/reference/spark.md"


def test_every_option_is_documented() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in SOURCE_OPTIONS if f"`{name}`" not in text] == []
