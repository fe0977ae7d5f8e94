"""Goal: what Kafka's tools make of text, without a daemon.
Method: the tools' documented properties, contradictions among them.
"""

from __future__ import annotations

import socket

import pytest
from click.testing import CliRunner

from kafkalog import __version__
from kafkalog.cli.kafka_tools.console_consumer import RecordFormatter
from kafkalog.cli.kafka_tools.console_producer import LineReader, UnreadableLine
from kafkalog.cli.kafka_tools.get_offsets import listed_partitions, partition_rules
from kafkalog.cli.kafka_tools.tool import (
    ToolFailed,
    access_of,
    first_that_answers,
    matching,
    number_fault,
)
from kafkalog.cli.main import make_cli
from kafkalog.client import Basic, ConsumerRecord, ProducerRecord, Tls


@pytest.mark.parametrize(
    ("words", "message", "is_on_stdout"),
    [
        (("kafka-topics", "--lst"), "lst is not a recognized option\nDid you mean --list?", False),
        (
            ("kafka-topics", "--list", "--exclude-int"),
            "exclude-int is not a recognized option",
            False,
        ),
        (("kafka-topics", "--list"), "--bootstrap-server must be specified", False),
        (("kafka-topics", "--list", "--topic"), "Option topic requires an argument", False),
        (
            ("kafka-topics", "--create", "--topic", "a", "--topic", "b"),
            "Error while executing topic command : Found multiple arguments for option topic, but"
            " you asked for only one",
            True,
        ),
        (
            ("kafka-topics", "--create", "--topic", "a", "--partitions", "two"),
            "Error while executing topic command : Cannot parse argument 'two' of option"
            " partitions",
            True,
        ),
        (
            ("kafka-configs", "--describe", "--topic", "a", "--topic", "b"),
            "Found multiple arguments for option topic, but you asked for only one",
            False,
        ),
        (("kafka-get-offsets", "--nope"), "Error occurred: nope is not a recognized option", False),
        (
            ("kafka-delete-records", "--bootstrap-server", "a:1"),
            'Missing required argument "[offset-json-file]"',
            False,
        ),
    ],
)
def test_wrong_options_have_kafkas_words(
    words: tuple[str, ...], message: str, is_on_stdout: bool
) -> None:
    """And its status; a scripts' grammar is that of the tools, which take no shortened option."""
    result = CliRunner().invoke(make_cli(), ["compat", *words])
    assert result.exit_code == 1
    said, other = result.stdout, result.stderr
    if not is_on_stdout:
        said, other = other, said
    assert said.startswith(message)
    assert other == ""


@pytest.mark.parametrize("listed", ["127.0.0.1:{0},127.0.0.1:{1}", " 127.0.0.1:{1} , b:1", "{1}"])
def test_the_first_address_that_answers_is_taken(listed: str) -> None:
    """As Kafka's clients take one of bootstrap.servers; the last one when no other answers."""
    with socket.create_server(("127.0.0.1", 0)) as open_port, socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # listens not
        ports = bound.getsockname()[1], open_port.getsockname()[1]
        bootstrap = listed.format(*ports)
        answering = bootstrap if listed == "{1}" else f"127.0.0.1:{ports[1]}"
        assert first_that_answers(bootstrap) == answering
        closed = f"127.0.0.1:{ports[0]}"
        assert first_that_answers(f"{closed},{closed}") == closed


def test_a_list_of_addresses_is_used() -> None:
    """The failure is that of the last address."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{bound.getsockname()[1]}"
        words = ["compat", "kafka-topics", "--bootstrap-server", f"{closed},no.invalid:1", "--list"]
        result = CliRunner().invoke(make_cli(), words)
    assert result.exit_code == 1
    assert "no.invalid" in result.output


@pytest.mark.parametrize("tool", ["kafka-topics", "kafka-dump-log", "kafka-console-consumer"])
def test_the_version_is_kafkas_first(tool: str) -> None:
    result = CliRunner().invoke(make_cli(), ["compat", tool, "--version"])
    assert (result.exit_code, result.stdout) == (0, f"4.1.0 (kafkalog {__version__})\n")


@pytest.mark.parametrize(
    ("configs", "fault"),
    [
        (
            {"retention.ms": "7d"},
            "Invalid value 7d for configuration retention.ms: Not a number of type LONG",
        ),
        (
            {"flush.ms": "5", "segment.bytes": "64MiB"},
            "Invalid value 64MiB for configuration segment.bytes: Not a number of type INT",
        ),
        (
            {"retention.ms": "7days"},
            "Invalid value 7days for configuration retention.ms: Not a number of type LONG",
        ),
        (
            {"min.cleanable.dirty.ratio": "half"},
            "Invalid value half for configuration min.cleanable.dirty.ratio: Not a number of type"
            " DOUBLE",
        ),
        (
            {"segment.bytes": "3000000000"},
            "Invalid value 3000000000 for configuration segment.bytes: Not a number of type INT",
        ),
        ({"retention.ms": "-1", "no.such": "7d", "cleanup.policy": "7d", "flush.ms": " 5"}, None),
    ],
)
def test_kafkas_tools_take_only_numbers(configs: dict[str, str], fault: str | None) -> None:
    assert number_fault(configs) == fault


JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="al" password="{}";'
)


def test_topics_are_matched_as_the_tools_match_them() -> None:
    names = ["__consumer_offsets", "a", "b.c", "bxc"]
    assert matching(names, None) == names
    assert matching(names, None, with_internal=False) == names[1:]
    assert matching(names, "a, b.c") == ["a", "b.c", "bxc"]
    assert matching(names, "'b\\.c'") == ["b.c"]
    assert matching(names, "b") == []
    with pytest.raises(ToolFailed, match=r"^\[ is an invalid regex\.$"):
        matching(names, "[")


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("t:1", {1}),
        ("t:1-3", {1, 2}),
        ("t:-2", {0, 1}),
        ("t:3-", {3, 4}),
        ("t", {0, 1, 2, 3, 4}),
        (":4", {4}),
        ("t:0,t:4,", {0, 4}),
        ("u:0", set()),
    ],
)
def test_partitions_are_chosen_by_rules(text: str, allowed: set[int]) -> None:
    rules = partition_rules(text)
    assert {n for n in range(5) if any(rule.allows("t", n) for rule in rules)} == allowed


def test_listed_partitions() -> None:
    assert listed_partitions("0,7,") == {0, 7}
    assert listed_partitions("") == frozenset()
    with pytest.raises(ToolFailed, match="but received: 0,,x"):
        listed_partitions("0,,x")


@pytest.mark.parametrize(
    ("properties", "line", "record"),
    [
        ({}, "v", ProducerRecord("v")),
        ({"parse.key": " TRUE "}, "k\tv\tw", ProducerRecord("v\tw", "k")),
        ({"parse.key": "true", "key.separator": "::"}, "k::v", ProducerRecord("v", "k")),
        ({"parse.key": "true", "ignore.error": "true"}, "v", ProducerRecord("v")),
        ({"null.marker": "-"}, "-", ProducerRecord(None)),
        (
            {"parse.headers": "true", "parse.key": "true"},
            "a:1,b:\tk\tv",
            ProducerRecord("v", "k", (("a", b"1"), ("b", b""))),
        ),
        ({"parse.headers": "true", "ignore.error": "true"}, "v", ProducerRecord("v")),
        (
            {"parse.headers": "true", "ignore.error": "true"},
            "a,b:1,\tv",
            ProducerRecord("v", None, (("a", None), ("b", b"1"))),
        ),
        ({"parse.headers": "true", "null.marker": "-"}, "-\tv", ProducerRecord("v")),
        (
            {"parse.headers": "true", "headers.separator": ";+", "headers.key.separator": "="},
            "a=1;;b=2\tv",
            ProducerRecord("v", None, (("a", b"1"), ("b", b"2"))),
        ),
    ],
)
def test_a_line_is_read(properties: dict[str, str], line: str, record: ProducerRecord) -> None:
    assert LineReader(properties).record(line, 1) == record


@pytest.mark.parametrize(
    ("properties", "line", "reason"),
    [
        ({"parse.key": "true"}, "v", "No key separator found on line number 3: 'v'"),
        ({"parse.headers": "true"}, "v", "No headers delimiter found on line number 3: 'v'"),
        (
            {"parse.headers": "true"},
            "a\tv",
            "No header key separator found in pair 'a' on line number 3",
        ),
        (
            {"parse.headers": "true", "null.marker": "-"},
            "-:1\tv",
            "Header keys should not be equal to the null marker '-' as they can't be null",
        ),
    ],
)
def test_a_line_is_refused(properties: dict[str, str], line: str, reason: str) -> None:
    reader = LineReader(properties)
    with pytest.raises(UnreadableLine) as refused:
        reader.record(line, 3)
    assert str(refused.value) == f"org.apache.kafka.common.KafkaException: {reason}"


@pytest.mark.parametrize(
    ("properties", "first", "second"),
    [
        ({"headers.delimiter": ","}, "headers.delimiter", "headers.separator"),
        ({"headers.key.separator": "\t"}, "headers.delimiter", "headers.key.separator"),
        ({"headers.separator": ":"}, "headers.separator", "headers.key.separator"),
        ({"null.marker": ";", "key.separator": ";"}, "null.marker", "key.separator"),
        ({"null.marker": ","}, "null.marker", "headers.separator"),
        ({"null.marker": "\t", "key.separator": ":"}, "null.marker", "headers.delimiter"),
    ],
)
def test_separators_that_cannot_be_told_apart(
    properties: dict[str, str], first: str, second: str
) -> None:
    said = f"KafkaException: {first} and {second} may not be equal$"
    with pytest.raises(UnreadableLine, match=said):
        LineReader(properties)


def test_a_record_is_formatted() -> None:
    record = ConsumerRecord("t", 3, 9, 77, None, b"\x00\x00\x00\x05", (("h", None), ("i", b"1")))

    def shown(**properties: str) -> bytes:
        given = {name.replace("_", "."): text for name, text in properties.items()}
        return RecordFormatter(given).line(record, "LogAppendTime")

    assert shown() == b"\x00\x00\x00\x05\n"
    assert shown(value_deserializer="IntegerDeserializer") == b"5\n"
    assert shown(print_value="false") == b""
    key = {"print_key": "true", "print_value": "no", "null_literal": "-"}
    assert shown(**key, line_separator=";") == b"-;"
    assert shown(print_headers="true", print_value="false") == b"h:null,i:1\n"
    assert shown(print_timestamp="true", print_epoch="true", print_value="false") == (
        b"LogAppendTime:77\tEpoch:NOT_PRESENT\n"
    )
    with pytest.raises(ToolFailed, match="DoubleDeserializer is not one of"):
        shown(value_deserializer="DoubleDeserializer")


def test_access_by_the_properties_of_a_client() -> None:
    plain = access_of({})
    assert (plain.url("h:1"), plain.credentials, plain.tls) == ("h:1", None, None)
    store = {"ssl.truststore.location": "ca.pem", "ssl.truststore.type": "PEM"}
    assert access_of(store).tls is None  # PLAINTEXT reads no store
    secure = access_of({"security.protocol": "ssl", **store})
    assert (secure.url("h:1"), secure.tls) == ("https://h:1", Tls("ca.pem"))
    assert secure.url("https://h:1") == "https://h:1"
    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    named = access_of({**sasl, "sasl.jaas.config": JAAS.format(r"p\"w\\")})
    assert named.credentials == Basic("al", 'p"w\\')
    for properties, reason in (
        (sasl, "sasl.jaas.config has no username"),
        ({**sasl, "sasl.mechanism": "SCRAM-SHA-256"}, "sasl.mechanism must be PLAIN"),
        ({**sasl, "sasl.jaas.config": 'x username="a:b" password="c"'}, "cannot contain a colon"),
    ):
        with pytest.raises(ToolFailed, match=reason):
            access_of(properties)
