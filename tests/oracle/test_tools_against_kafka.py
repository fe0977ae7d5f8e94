"""Goal: Kafka's tools and those of `kafkalog compat` cannot be told apart by what they print.
Method: the real tools at a running broker and ours at a running daemon, the same commands in the
same order: standard output line by line, the first line of an error, exit status. What must differ
is made equal first: topic ids, addresses, times, the config that Kafka sets by itself, and the
order of topics, configs and partitions, which follows Java's hash tables there and names here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.integration.test_cli_compat import tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.daemon import Daemon
    from tests.oracle.kafka import Broker

pytestmark = pytest.mark.oracle

CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
}
UNORDERED = ("kafka-topics", "kafka-configs", "kafka-consumer-groups")
OVERRIDES = (
    "cleanup.policy=compact,delete", "retention.ms=86400000", "segment.bytes=1048576",
    "flush.ms=9", "flush.messages=8", "index.interval.bytes=512", "max.message.bytes=900000",
    "delete.retention.ms=7", "min.compaction.lag.ms=6", "preallocate=true", "segment.ms=99999",
    "message.timestamp.type=LogAppendTime", "min.cleanable.dirty.ratio=0.25",
    "compression.type=zstd", "file.delete.delay.ms=5", "retention.bytes=123456789",
)  # fmt: skip
FULL = tuple(word for pair in OVERRIDES for word in ("--config", pair))
HEADED = tuple(
    word
    for name in ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
    for word in ("--property", f"print.{name}=true")
)
READER = ("--property", "parse.key=true", "--property", "parse.headers=true")
NULLS = ("--property", "null.marker=NULL")

EQUALLERS = (
    (re.compile(r"TopicId: \S{22}"), "TopicId: ID"),
    (re.compile(r"(?<=[ ,])min\.insync\.replicas=1(,|$)"), ""),
    (re.compile(r"DYNAMIC_DEFAULT_BROKER_CONFIG:min\.insync\.replicas=1, "), ""),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"Time:\d+"), "Time:T"),
    (re.compile(r'"logDir":"[^"]*"'), '"logDir":"DIR"'),
)


def equalled(text: str) -> list[str]:
    """Lines without what differs between any two clusters."""
    lines = text.splitlines()
    for pattern, replacement in EQUALLERS:
        lines = [pattern.sub(replacement, line) for line in lines]
    return lines


def without_order(lines: list[str]) -> list[str]:
    """The same lines for any order of topics, configs, partitions and groups."""
    return sorted(_with_sorted_groups(_with_sorted_configs(line)) for line in lines)


def _with_sorted_groups(line: str) -> str:
    """Kafka has its hash map's order in ``... of requested consumer groups ('b', 'a') ...``."""
    return re.sub(
        r"(?<=groups \()'[^)]*", lambda found: ", ".join(sorted(found[0].split(", "))), line
    )


def _with_sorted_configs(line: str) -> str:
    head, found, configs = line.partition("\tConfigs: ")
    pairs = re.split(r",(?=[a-z.]+=)", configs)
    return f"{head}{found}{','.join(sorted(filter(None, pairs)))}"


def compare(
    broker: Broker,
    daemon: Daemon,
    name: str,
    *options: str,
    stdin: str = "",
    is_error: bool = False,
) -> list[str]:
    """Both tools; the lines that both printed. is_error: the errors' first lines too."""
    where = ("--bootstrap-server", broker.bootstrap)
    expected = broker.kafka.run("java", CLASSES[name], *options, *where, stdin=stdin, check=False)
    got = tool(daemon, name, *options, stdin=stdin)
    shown = (name, options, expected.stderr[:2000], got.stderr)
    mine, kafkas = equalled(got.stdout), equalled(expected.stdout)
    if name in UNORDERED:
        mine, kafkas = without_order(mine), without_order(kafkas)
    assert mine == kafkas, shown
    assert got.exit_code == expected.status, shown
    if is_error:
        mine, kafkas = (equalled(text.strip())[:1] for text in (got.stderr, expected.stderr))
        assert mine == kafkas, shown
    return equalled(got.stdout)


def compare_log_dirs(broker: Broker, daemon: Daemon, *options: str) -> None:
    """As ``compare``, but for the order of partitions, which follows hash tables in Kafka."""
    where = ("--bootstrap-server", broker.bootstrap)
    name, described = "kafka-log-dirs", ("--describe", *options)
    kafkas = broker.kafka.run("java", CLASSES[name], *described, *where).lines()
    ours = tool(daemon, name, *described).stdout.splitlines()
    assert ours[:2] == kafkas[:2]
    found = []
    for line in (ours[2], kafkas[2]):
        start, _, rest = line.partition('"partitions":[')
        partitions, _, end = rest.partition("]")
        entries = partitions.split("},{") if partitions else []
        bare = sorted(entry.strip("{}") for entry in entries)
        found.append((start, bare, equalled(end)))
    assert found[0] == found[1]


def test_topics_and_their_directories(new_broker: Callable[..., Broker], daemon: Daemon) -> None:
    """Every action; refusals."""
    topics, broker = "kafka-topics", new_broker()

    def same(*options: str) -> list[str]:
        return compare(broker, daemon, topics, *options)

    same("--create", "--topic", "life", "--partitions", "2", *FULL)
    same("--create", "--topic", "a.b", "--replication-factor", "1")
    same("--create", "--topic", "many", "--replica-assignment", ",".join("1" * 17))
    for number in range(5):
        broker.create_topic(f"more{number}")
        daemon.create_topic(f"more{number}", retention_ms="-1")
    for refused in (
        ("--topic", "life"),
        ("--topic", "bad/name"),
        ("--topic", "x_y", "--config", "no.such=1"),
        ("--topic", "x", "--config", "novalue"),
        ("--topic", "x", "--replication-factor", "2"),
        ("--topic", "x", "--replication-factor", "0"),
        ("--topic", "x", "--partitions", "0"),
        ("--topic", "x", "--replica-assignment", "1,7"),
    ):
        (line, *_) = same("--create", *refused)
        assert line.startswith(("Error while executing topic command : ", "WARNING: "))
    same("--create", "--topic", "life", "--if-not-exists")
    assert len(same("--list")) == 8
    same("--list", "--topic", "more[0-2], a.b")
    same("--list", "--topic", "nope")
    described = same("--describe")
    assert "segment.bytes=1048576" in str(described)
    same("--describe", "--topic", "life", "--at-min-isr-partitions")
    same("--describe", "--topic", "life", "--unavailable-partitions")
    same("--describe", "--topic", "nope")
    same("--describe", "--topic", "nope", "--if-exists")
    for count in ("2", "1", "3"):
        same("--alter", "--topic", "life", "--partitions", count)
    same("--alter", "--topic", "nope", "--partitions", "3")
    assert len(same("--describe", "--topic", "life")) == 4
    compare_log_dirs(broker, daemon)
    compare_log_dirs(broker, daemon, "--topic-list", "many,nope")
    compare(broker, daemon, "kafka-log-dirs", "--describe", "--broker-list", "1,5", is_error=True)
    same("--delete", "--topic", "more.*")
    same("--delete", "--topic", "nope")
    same("--list")
    wrong = (("--list", "--create"), ("--list", "--config", "a=b"), ("--alter", "--topic", "t"))
    for options in wrong:
        compare(broker, daemon, topics, *options, is_error=True)


def test_configs(broker: Broker, daemon: Daemon) -> None:
    """M13: described with and without defaults, altered, refused."""
    for name in ("configured", "plain", "c"):
        compare(broker, daemon, "kafka-topics", "--create", "--topic", name)

    def same(*options: str, is_error: bool = False) -> list[str]:
        return compare(broker, daemon, "kafka-configs", *options, is_error=is_error)

    topic = ("--entity-type", "topics", "--entity-name", "configured")
    same("--alter", *topic, "--add-config", "cleanup.policy=[compact,delete], flush.ms=7")
    same("--alter", "--topic", "c", "--add-config", "retention.ms=-1")
    same("--describe", *topic)
    assert len(same("--describe", "--all", *topic)) > 30
    same("--alter", *topic, "--delete-config", "flush.ms")
    same("--describe", "--topic", "configured")
    same("--describe", "--topic", "nope")
    same("--describe", "--broker", "9")
    for options in (
        ("--alter", *topic, "--delete-config", "flush.ms"),
        ("--alter", *topic, "--add-config", "a"),
        ("--alter", *topic, "--add-config", "a b=c"),
        ("--alter", *topic, "--add-config", "no.such=1"),
        ("--alter", "--topic", "nope", "--add-config", "retention.ms=1"),
        ("--alter", *topic),
        ("--describe",),
        ("--describe", "--entity-type", "things"),
        ("--alter", "--broker", "one", "--add-config", "a=b"),
    ):
        same(*options, is_error=True)


def test_records_and_offsets(broker: Broker, daemon: Daemon) -> None:
    """M01: lines in and out with all that can be shown of them, offsets, what cannot be read."""
    for name, count in (("tools.console", "1"), ("tools.spread", "12")):
        create = ("--create", "--topic", name, "--partitions", count)
        compare(broker, daemon, "kafka-topics", *create, "--config", "retention.ms=-1")
    text = "a:1,b:NULL\tk1\tv1\nNULL\tNULL\tNULL\r\nc:\tk3\tv\t3\n\u00e4:\u00f6\t\u00fc\t\u20ac\n"
    producer, consumer = "kafka-console-producer", "kafka-console-consumer"
    compare(broker, daemon, producer, "--topic", "tools.console", *READER, *NULLS, stdin=text)
    keyed = "".join(f"key{number}\tv\n" for number in range(40))
    compare(broker, daemon, producer, "--topic", "tools.spread", *READER[:2], stdin=keyed)
    partition = ("--topic", "tools.console", "--partition", "0", "--offset")
    read = (*partition, "earliest", "--max-messages")
    assert len(compare(broker, daemon, consumer, *read, "4", *HEADED)) == 4
    compare(broker, daemon, consumer, *read, "2", "--property", "null.literal=-")
    from_two = (*partition, "2", "--max-messages", "1")
    compare(broker, daemon, consumer, *from_two, "--property", "print.value=false")
    bad = ("--topic", "tools.console", "--property", "parse.key=true")
    compare(broker, daemon, producer, *bad, stdin="nokey\n", is_error=True)

    offsets = "kafka-get-offsets"
    some = ("--topic", "tools.console|tools.spread")
    for time in ("latest", "-2", "-4", "-5", "0", "9999999999999"):
        compare(broker, daemon, offsets, *some, "--time", time)
    places = "tools.spread:1-3,tools.con.*:0,tools.spread:11-,x:1"
    compare(broker, daemon, offsets, "--topic-partitions", places)
    compare(broker, daemon, offsets, *some, "--partitions", "0,3,99")
    for options in (
        ("--topic", "nope"),
        ("--topic", "t", "--topic-partitions", "t"),
        ("--topic-partitions", "t:a"),
        ("--partitions", "0,x"),
        ("--time", "soon"),
    ):
        compare(broker, daemon, offsets, *options, is_error=True)


# What is wrong with an option; whose reason is on standard output, or on standard error.
ON_STDOUT = (
    ("kafka-topics", "--create", "--topic=h", "--partitions=1"),
    ("kafka-topics", "--list", "--topic", "h", "extra"),
    ("kafka-topics", "--create", "--topic", "j", "--topic", "k"),
    ("kafka-topics", "--create", "--topic", "j", "--partitions", "two"),
    ("kafka-topics", "--create", "--topic", "j", "--config", "retention.ms=7d"),
    ("kafka-topics", "--create", "--topic", "j", "--config", "segment.bytes=64MiB"),
    ("kafka-topics", "--describe", "--unavailable-partitions", "--under-replicated-partitions"),
    ("kafka-configs", "--alter", "--topic", "h", "--add-config", "flush.ms=5"),
    ("kafka-configs", "--alter", "--topic", "h", "--delete-config", ""),
    ("kafka-configs", "--alter", "--broker", "1", "--add-config", "log.retention.ms=-1"),
    ("kafka-configs", "--alter", "--broker", "1", "--delete-config", "log.retention.ms"),
    ("kafka-get-offsets", "--topic", "h", "--time", "earliest"),
    ("kafka-get-offsets", "--topic=h", "--time=-1"),
    ("kafka-get-offsets", "--topic", "h", "--time", "max-timestamp"),
    ("kafka-get-offsets", "--topic-partitions", "h:0"),
)
ON_STDERR = (
    ("kafka-topics",),
    ("kafka-topics", "--lst"),
    ("kafka-topics", "--list", "--nope", "1"),
    ("kafka-topics", "--list", "--exclude-int"),
    ("kafka-topics", "--describe", "--topic", "h", "--under-rep"),
    ("kafka-topics", "--delete"),
    ("kafka-topics", "--alter", "--topic", "h"),
    ("kafka-configs", "--describe", "--topic", "h", "--nope"),
    ("kafka-configs", "--alter", "--entity-t", "topics", "--entity-n", "h"),
    ("kafka-configs", "--alter", "--topic", "h", "--add-config", "a=b", "--add-config", "c=d"),
    ("kafka-configs", "--describe", "--topic", "h", "--topic", "i"),
    ("kafka-configs", "--alter", "--topic", "h", "--add-config", ""),
    ("kafka-configs", "--alter", "--topic", "h", "--add-config", "cleanup.policy=compact,delete"),
    ("kafka-configs", "--alter", "--topic", "h", "--add-config", "retention.ms=abc"),
    ("kafka-configs", "--alter", "--topic", "h", "--add-config", "retention.ms=7d"),
    ("kafka-configs", "--alter", "--entity-type", "topics", "--add-config", "a=b"),
    ("kafka-configs", "--describe", "--alter", "--topic", "h"),
    ("kafka-configs", "--alter", "--broker", "1", "--add-config", "num.partitions=3"),
    ("kafka-get-offsets", "--nope"),
    ("kafka-get-offsets", "--topic", "h", "--part", "0"),
    ("kafka-get-offsets", "--topic", "["),
    ("kafka-log-dirs",),
    ("kafka-log-dirs", "--nope"),
    ("kafka-log-dirs", "--describe", "--broker-list", "x"),
    ("kafka-delete-records", "--nope"),
    ("kafka-delete-records",),
    ("kafka-delete-records", "--offset-json-file", "/no/such/file"),
    ("kafka-console-producer", "--nope", "x"),
    ("kafka-console-producer",),
    ("kafka-console-producer", "--topic", "h", "--property", "nope"),
    ("kafka-console-consumer", "--nope"),
    ("kafka-console-consumer", "--topic", "h", "--from-beg"),
    ("kafka-console-consumer", "--topic", "h", "--offset", "1"),
    ("kafka-console-consumer", "--topic", "h", "--partition", "0", "--offset", "soon"),
    ("kafka-console-consumer", "--topic", "h", "--partition", "0", "--offset", "-3"),
    ("kafka-console-consumer", "--topic", "h", "--group", "a", "--partition", "0"),
    ("kafka-consumer-groups", "--list", "--nope"),
    ("kafka-consumer-groups", "--describe"),
)


def test_the_grammar_of_options(new_broker: Callable[..., Broker], daemon: Daemon) -> None:
    """Options in full and once, their values, and the words and status about what is wrong."""
    broker = new_broker()
    for name, *options in ON_STDOUT:
        compare(broker, daemon, name, *options)
    for name, *options in ON_STDERR:
        compare(broker, daemon, name, *options, is_error=True)
