"""Goal: Kafka's tools under `kafkalog compat` take their options and print their lines.
Method: the command tree in process at a real daemon, standard output compared to the byte. What the
lines must be was seen at Kafka's own tools; tests/oracle compares with them anew.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kafkalog.cli.kafka_tools.install import _CLASSES
from kafkalog.cli.main import make_cli
from tests.integration.daemon import ROOT
from tests.integration.http_world import batch_of, end_offset
from tests.integration.test_cli_over_http import done, run_plain

if TYPE_CHECKING:
    from click.testing import Result

    from tests.integration.daemon import Daemon

SETTINGS = {"log_retention_check_interval_ms": "3600000", "auto_create_topics_enable": "false"}
FAILED = "Error while executing topic command : "
PARTITION = "\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "


def tool(daemon: Daemon, name: str, *options: str, stdin: str = "") -> Result:
    """``kafkalog compat NAME OPTIONS --bootstrap-server HOST:PORT``."""
    where = ("--bootstrap-server", f"127.0.0.1:{daemon.port}")
    return CliRunner().invoke(make_cli(), ["compat", name, *options, *where], input=stdin)


def printed(result: Result) -> str:
    """Its standard output; it must have succeeded."""
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def create(daemon: Daemon, name: str, *options: str) -> None:
    printed(tool(daemon, "kafka-topics", "--create", "--topic", name, *options))


def test_topics_live_from_create_to_delete(daemon: Daemon) -> None:
    topics = "kafka-topics"
    settings = ("--config", "retention.ms=86400000", "--config", "segment.bytes=1048576")
    made = tool(
        daemon, topics, "--create", "--topic", "life", "--partitions", "2", *settings,
        "--replication-factor", "1",
    )  # fmt: skip
    assert printed(made) == "Created topic life.\n"
    named = printed(tool(daemon, topics, "--create", "--topic", "life.b"))
    assert named.startswith("WARNING: Due to limitations in metric names, topics with a period")
    assert named.endswith("\nCreated topic life.b.\n")
    assert printed(tool(daemon, topics, "--create", "--topic", "life", "--if-not-exists")) == ""
    assert printed(tool(daemon, topics, "--list", "--topic", "life.*")) == "life\nlife.b\n"
    assert printed(tool(daemon, topics, "--list", "--topic", "nope")) == "\n"
    head, *partitions = printed(tool(daemon, topics, "--describe", "--topic", "life")).splitlines()
    assert head.startswith("Topic: life\tTopicId: ")
    assert head.endswith(
        "\tPartitionCount: 2\tReplicationFactor: 1"
        "\tConfigs: retention.ms=86400000,segment.bytes=1048576"
    )
    assert partitions == [f"\tTopic: life\tPartition: {n}{PARTITION}" for n in (0, 1)]
    by_id = ("--describe", "--topic-id", head.split("\t")[1].removeprefix("TopicId: "))
    assert printed(tool(daemon, topics, *by_id)).splitlines()[0] == head
    listed = printed(tool(daemon, topics, "--describe", "--topics-with-overrides"))
    assert listed.splitlines() == [head]
    grow = tool(daemon, topics, "--alter", "--topic", "life", "--partitions", "3")
    assert printed(grow) == ""
    assert printed(tool(daemon, topics, "--delete", "--topic", "life|life.b")) == ""
    assert (
        printed(tool(daemon, topics, "--list", "--exclude-internal", "--topic", "life.*")) == "\n"
    )


def test_reports_of_partitions(daemon: Daemon) -> None:
    """With one broker all have just enough replicas, or too few where two are wanted."""
    create(daemon, "enough", "--partitions", "2")
    create(daemon, "toofew", "--config", "min.insync.replicas=2")
    report = ("--describe", "--topic", "enough,toofew")
    at = printed(tool(daemon, "kafka-topics", *report, "--at-min-isr-partitions"))
    assert [line.split("\t")[1] for line in at.splitlines()] == ["Topic: enough"] * 2
    under = printed(tool(daemon, "kafka-topics", *report, "--under-min-isr-partitions"))
    assert [line.split("\t")[1] for line in under.splitlines()] == ["Topic: toofew"]
    for name in ("--under-replicated-partitions", "--unavailable-partitions"):
        assert printed(tool(daemon, "kafka-topics", *report, name)) == ""


# By tool and the head of what it says; with this head on standard output, else on standard error.
FAILURES: dict[tuple[str, str], list[tuple[tuple[str, ...], str]]] = {
    ("kafka-topics", FAILED): [
        (("--create", "--topic", "taken"), "Topic 'taken' already exists."),
        (("--describe", "--topic", "nope"), "Topic 'nope' does not exist as expected"),
        (("--delete", "--topic", "nope"), "Topic 'nope' does not exist as expected"),
        (("--describe", "--topic-id", "x"), "TopicId 'x' does not exist as expected"),
        (("--list", "--topic", "("), "( is an invalid regex."),
        (("--alter", "--topic", "taken", "--partitions", "1"), "Topic already has 1 partition(s)."),
        (
            ("--create", "--topic", "x", "--config", "a"),
            "requirement failed: Invalid topic config: all configs to be added must be in the"
            ' format "key=val".',
        ),
        (
            ("--create", "--topic", "x", "--partitions", "0"),
            "The partitions must be greater than 0",
        ),
        (
            ("--create", "--topic", "x", "--replication-factor", "0"),
            "The replication factor must be between 1 and 32767 inclusive",
        ),
        (
            ("--create", "--topic", "x", "--replication-factor", "2"),
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot"
            " be reached because only 1 broker(s) are registered.",
        ),
        (
            ("--create", "--topic", "x", "--replica-assignment", "1,7"),
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
    ],
    ("kafka-topics", ""): [
        (
            (),
            "Command must include exactly one action: --list, --describe, --create, --alter or"
            " --delete",
        ),
        (("--create",), 'Missing required argument "[topic]"'),
        (("--alter", "--topic", "t"), 'Missing required argument "[partitions]"'),
        (("--describe", "--if-exists"), "--topic or --topic-id is required to describe a topic"),
        (
            ("--list", "--partitions", "2"),
            'Option "[partitions]" can\'t be used with option "[list]"',
        ),
        (
            ("--describe", "--topics-with-overrides", "--unavailable-partitions"),
            'Option "[unavailable-partitions]" can\'t be used with option'
            ' "[topics-with-overrides]"',
        ),
    ],
    ("kafka-configs", ""): [
        (("--topic", "t"), "Command must include exactly one action: --describe, --alter"),
        (("--describe",), "At least one entity type must be specified"),
        (
            ("--alter", "--topic", "t"),
            "At least one of --add-config, --add-config-file, or --delete-config must be specified"
            " with --alter",
        ),
        (
            ("--alter", "--entity-type", "topics", "--add-config", "a=b"),
            "An entity name must be specified with --alter of topics",
        ),
        (
            ("--alter", "--broker", "one", "--add-config", "a=b"),
            "The entity name for brokers must be a valid integer broker id, but it is: one",
        ),
        (
            ("--alter", "--topic", "known", "--add-config", "a"),
            "requirement failed: Invalid entity config: all configs to be added must be in the"
            ' format "key=val" or  "key=[val1,val2]" to group values which contain commas.',
        ),
        (
            ("--alter", "--topic", "known", "--add-config", "a b=c"),
            "Invalid character found for config key: a b",
        ),
        (
            ("--alter", "--topic", "known", "--delete-config", "retention.ms,x"),
            "Invalid config(s): retention.ms,x",
        ),
        (
            ("--describe", "--entity-type", "users", "--entity-name", "u"),
            "kafkalog has no configs of users",
        ),
        (
            ("--describe", "--entity-type", "brokers", "--entity-default"),
            "kafkalog has one broker: give its id instead of the default's",
        ),
        (
            ("--describe", "--topic", "t", "--entity-name", "t"),
            "--entity-{type,name,default} should not be used in conjunction with specific entity"
            " flags",
        ),
    ],
    ("kafka-get-offsets", "Error occurred: "): [
        (("--topic", "nope"), "Could not match any topic-partitions with the specified filters"),
        (
            ("--topic", "t", "--topic-partitions", "t"),
            "--topic-partitions cannot be used with --topic or --partitions",
        ),
        (
            ("--topic-partitions", "t:a"),
            "org.apache.kafka.tools.TerseException: Invalid rule specification: t:a",
        ),
        (
            ("--partitions", "0,x"),
            "--partitions expects a comma separated list of numeric partition ids, but received:"
            " 0,x",
        ),
        (
            ("--time", "soon"),
            "Malformed time argument soon. Please use -1 or latest / -2 or earliest / -3 or"
            " max-timestamp / -4 or earliest-local / -5 or latest-tiered, or a specified long"
            " format timestamp",
        ),
    ],
}


@pytest.mark.parametrize(
    ("name", "head", "options", "message"),
    [(*key, *row) for key, rows in FAILURES.items() for row in rows],
)
def test_failures(
    daemon: Daemon, name: str, head: str, options: tuple[str, ...], message: str
) -> None:
    """M13: the tool's own words, status 1, nothing made."""
    for topic in ("taken", "known"):
        create(daemon, topic, "--if-not-exists")
    result = tool(daemon, name, *options)
    said = result.stdout if head == FAILED else result.stderr
    assert (result.exit_code, said) == (1, f"{head}{message}\n")
    assert head == FAILED or result.stdout == ""
    assert "x" not in printed(tool(daemon, "kafka-topics", "--list")).splitlines()


def test_configs_are_altered_and_described(daemon: Daemon, tmp_path: Path) -> None:
    """M13: the tool's lines; configs of kafkalog's own only where somebody set them."""
    configs = "kafka-configs"
    create(daemon, "worded")
    topic = ("--entity-type", "topics", "--entity-name", "worded")
    added = ("--add-config", "cleanup.policy=[compact,delete],retention.ms=5000")
    assert printed(tool(daemon, configs, "--alter", *topic, *added)) == (
        "Completed updating config for topic worded.\n"
    )
    described = [
        "Dynamic configs for topic worded are:",
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:"
        "cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}",
        "  retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000}",
    ]
    assert (
        printed(tool(daemon, configs, "--describe", "--topic", "worded")).splitlines() == described
    )
    everything = printed(tool(daemon, configs, "--describe", "--all", "--topic", "worded"))
    assert "archive.hold" not in everything
    assert "  preallocate=false sensitive=false synonyms={" in everything
    file = tmp_path / "added.properties"
    file.write_text("archive.hold = true\n")
    printed(tool(daemon, configs, "--alter", *topic, "--add-config-file", str(file)))
    assert "  archive.hold=true " in printed(tool(daemon, configs, "--describe", *topic))
    deleted = ("--delete-config", "archive.hold,retention.ms")
    printed(tool(daemon, configs, "--alter", *topic, *deleted))
    assert printed(tool(daemon, configs, "--describe", *topic)).splitlines() == described[:2]


def test_configs_of_the_broker(daemon: Daemon) -> None:
    """M13: what was set at run time, by the broker's number."""
    configs = "kafka-configs"
    alter = ("--alter", "--broker", "1")
    changed = printed(tool(daemon, configs, *alter, "--add-config", "log.retention.bytes=5"))
    assert changed == "Completed updating config for broker 1.\n"
    assert printed(
        tool(daemon, configs, "--describe", "--entity-type", "brokers")
    ).splitlines() == [
        "Dynamic configs for broker 1 are:",
        "  log.retention.bytes=5 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:"
        "log.retention.bytes=5, DEFAULT_CONFIG:log.retention.bytes=-1}",
        "Default configs for brokers in the cluster are:",
    ]
    printed(tool(daemon, configs, *alter, "--delete-config", "log.retention.bytes"))
    gone = printed(tool(daemon, configs, "--describe", "--broker", "9"))
    assert gone == "The broker '9' doesn't exist and doesn't have dynamic config.\n"
    gone = printed(tool(daemon, configs, "--describe", "--topic", "nope"))
    assert gone == "The topic 'nope' doesn't exist and doesn't have dynamic config.\n"


def test_a_refused_config_repeats_the_arguments(daemon: Daemon) -> None:
    """M13: Kafka's head with the arguments as typed, the reason, the name that was meant."""
    create(daemon, "known", "--if-not-exists")
    typed = ("--alter", "--topic", "known", "--add-config", "retention.byte=5")
    result = tool(daemon, "kafka-configs", *typed)
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"Error while executing config command with args '{' '.join(typed)} --bootstrap-server"
        f" 127.0.0.1:{daemon.port}'",
        "Unknown topic config name: retention.byte; did you mean retention.bytes?",
    ]


def test_offsets_by_rule_and_by_time(daemon: Daemon) -> None:
    create(daemon, "placed", "--partitions", "12")
    daemon.produce_text("placed", "a", "b")
    offsets = "kafka-get-offsets"
    lines = printed(tool(daemon, offsets, "--topic", "placed")).splitlines()
    assert [line.split(":")[1] for line in lines] == sorted(map(str, range(12)))
    assert sum(int(line.split(":")[2]) for line in lines) == 2
    few = printed(tool(daemon, offsets, "--topic-partitions", "placed:1-3,plac.*:7,no:0"))
    assert [line.split(":")[1] for line in few.splitlines()] == ["1", "2", "7"]
    some = ("--topic", "placed", "--partitions", "4,5,99")
    for name in ("earliest", "-2", "earliest-local", "-4"):
        assert printed(tool(daemon, offsets, *some, "--time", name)) == "placed:4:0\nplaced:5:0\n"
    for name in ("latest-tiered", "-5"):
        assert printed(tool(daemon, offsets, *some, "--time", name)) == ""
    behind = ("--topic", "placed", "--time", "9999999999999")
    assert printed(tool(daemon, offsets, *behind)) == ""


def test_log_dirs_end_with_json(daemon: Daemon) -> None:
    create(daemon, "sized", "--partitions", "3")
    dirs = "kafka-log-dirs"
    lines = printed(tool(daemon, dirs, "--describe", "--topic-list", "sized,nope")).splitlines()
    assert lines[:2] == [
        "Querying brokers for log directories information",
        "Received log directory information from brokers 1",
    ]
    unwritable = tool(daemon, dirs, "--describe", "--topic-list", "\udcff")
    assert unwritable.exit_code == 2
    assert "'\\udcff' is not a name: it is not UTF-8" in unwritable.stderr
    document = json.loads(lines[2])
    assert list(document) == ["brokers", "version"]
    (broker,) = document["brokers"]
    (log_dir,) = broker["logDirs"]
    assert list(log_dir) == ["partitions", "error", "logDir"]
    sizes = {one["partition"]: one["size"] for one in log_dir["partitions"]}
    assert sizes == {f"sized-{number}": 0 for number in range(3)}
    strange = tool(daemon, dirs, "--describe", "--broker-list", "1,5")
    assert (strange.exit_code, strange.stderr) == (
        1,
        "ERROR: The given brokers do not exist from --broker-list: 5."
        " Current existent brokers: 1\n",
    )
    assert tool(daemon, dirs).stderr == 'Missing required argument "[describe]"\n'


def test_the_console_producer_feeds_the_console_consumer(daemon: Daemon) -> None:
    """M01: headers, keys, nulls and Java's ends of lines in; every field of a record out."""
    create(daemon, "console")
    reader = [
        word
        for pair in ("parse.key=true", "parse.headers=true", "null.marker=NULL", "key.separator=;")
        for word in ("--property", pair)
    ]
    text = "a:1,b:NULL\tk1;v1\r\nNULL\tNULL;NULL\rc:\tk3;v;3\n"
    produced = tool(daemon, "kafka-console-producer", "--topic", "console", *reader, stdin=text)
    assert printed(produced) == ""
    fields = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key")
    shown = [word for field in fields for word in ("--property", f"print.{field}=true")]
    read = ("--topic", "console", "--from-beginning", "--max-messages", "3")
    result = tool(daemon, "kafka-console-consumer", *read, *shown)
    rows = [line.split("\t") for line in printed(result).splitlines()]
    assert [row[1:] for row in rows] == [
        ["Partition:0", f"Offset:{number}", "Delivery:NOT_PRESENT", "Epoch:NOT_PRESENT", *rest]
        for number, rest in enumerate(
            [["a:1,b:null", "k1", "v1"], ["NO_HEADERS", "null", "null"], ["c:", "k3", "v;3"]]
        )
    ]
    assert all(row[0].startswith("CreateTime:1") for row in rows)
    assert result.stderr == "Processed a total of 3 messages\n"


def test_the_console_consumer_stops_and_goes_on(daemon: Daemon) -> None:
    create(daemon, "resumed", "--partitions", "2")
    printed(tool(daemon, "kafka-console-producer", "--topic", "resumed", stdin="a\nb\nc\n"))
    consumer = "kafka-console-consumer"
    (partition,) = [n for n in (0, 1) if end_offset(daemon, "resumed", n)]
    one = ("--topic", "resumed", "--partition", str(partition), "--timeout-ms", "10")
    assert printed(tool(daemon, consumer, *one, "--offset", "1")) == "b\nc\n"
    assert printed(tool(daemon, consumer, *one)) == ""
    beyond = ("--offset", "99", "--consumer-property", "auto.offset.reset=earliest")
    assert printed(tool(daemon, consumer, *one, *beyond)) == "a\nb\nc\n"
    group = ("--include", "resum.*", "--group", "g", "--from-beginning")
    assert printed(tool(daemon, consumer, *group, "--max-messages", "2")) == "a\nb\n"
    rest = tool(daemon, consumer, *group, "--timeout-ms", "10")
    assert printed(rest) == "c\n"
    assert rest.stderr.splitlines() == [
        "Error processing message, terminating consumer process: ",
        "org.apache.kafka.common.errors.TimeoutException",
        "Processed a total of 1 messages",
    ]


def test_records_that_the_console_cannot_show(daemon: Daemon) -> None:
    """A value of another size ends the tool, or is passed over when it is told to."""
    create(daemon, "numbers")
    printed(tool(daemon, "kafka-console-producer", "--topic", "numbers", stdin="12345678\nx\n"))
    read = ("--topic", "numbers", "--from-beginning", "--max-messages", "2")
    number = ("--value-deserializer", "org.apache.kafka.common.serialization.LongDeserializer")
    broken = tool(daemon, "kafka-console-consumer", *read, *number)
    assert (broken.exit_code, broken.stdout) == (1, f"{int.from_bytes(b'12345678', 'big')}\n")
    skipped = tool(daemon, "kafka-console-consumer", *read, *number, "--skip-message-on-error")
    assert printed(skipped) == broken.stdout
    assert "LongDeserializer is not 8" in skipped.stderr


def test_what_the_console_producer_cannot_append(daemon: Daemon) -> None:
    """M01: as Kafka's: told, and status 0; 1 with --sync; lines before a bad one are appended."""
    producer = "kafka-console-producer"
    told = tool(daemon, producer, "--topic", "nope", stdin="x\ny\n")
    assert printed(told) == ""
    assert told.stderr == (
        "Error when sending 2 messages to topic nope: Topic nope does not exist\n"
    )
    assert tool(daemon, producer, "--topic", "nope", "--sync", stdin="x\n").exit_code == 1
    create(daemon, "halfway")
    keyed = ("--topic", "halfway", "--property", "parse.key=true")
    bad = tool(daemon, producer, *keyed, stdin="k\tv\nnone\nk\tw\n")
    assert (bad.exit_code, bad.stderr) == (
        1,
        "org.apache.kafka.common.KafkaException: No key separator found on line number 2: 'none'\n",
    )
    assert end_offset(daemon, "halfway") == 1
    ignored = tool(daemon, producer, "--topic", "halfway", "--max-block-ms", "9", stdin="")
    assert printed(ignored) == ""
    assert ignored.stderr.startswith("--max-block-ms has no effect: ")


def test_properties_of_a_client(daemon: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    lists = ("--list", "--command-config", str(file))
    file.write_text("client.id=me\nsecurity.protocol=PLAINTEXT\n")
    named = tool(daemon, "kafka-topics", *lists)
    assert (named.exit_code, named.stderr) == (0, "The property client.id has no effect here\n")
    for text, reason in (
        ("security.protocol=SASL_PLAINTEXT\n", "sasl.mechanism must be PLAIN, not GSSAPI"),
        ("security.protocol=KERBEROS\n", "security.protocol is one of PLAINTEXT, "),
        (
            "security.protocol=SSL\nssl.truststore.location=/x.jks\n",
            "ssl.truststore.type must be PEM: kafkalog reads no key stores of Java",
        ),
    ):
        file.write_text(text)
        refused = tool(daemon, "kafka-topics", *lists)
        assert refused.exit_code == 1
        assert refused.stderr.startswith(reason)
    missing = tool(daemon, "kafka-topics", "--list", "--command-config", str(tmp_path / "none"))
    assert (missing.exit_code, missing.stdout) == (1, "")


def test_installed_scripts_are_the_tools(daemon: Daemon, tmp_path: Path) -> None:
    """One script a tool, by Kafka's names; files of others stay until --force."""
    listed = done(run_install(str(tmp_path / "bin"))).decode().splitlines()
    script = tmp_path / "bin" / "kafka-topics.sh"
    assert str(script) in listed
    assert len(listed) == len(list((tmp_path / "bin").iterdir())) > 5
    finished = subprocess.run(
        [script, "--bootstrap-server", f"127.0.0.1:{daemon.port}", "--list", "--topic", "nope"],
        capture_output=True,
        check=False,
        timeout=60,
        cwd=ROOT,
    )
    assert (finished.returncode, finished.stdout) == (0, b"\n"), finished.stderr
    script.write_text("#!/bin/sh\n# somebody else's\n")
    refused = run_install(str(tmp_path / "bin"))
    assert refused.returncode == 1
    assert b"--force replaces it" in refused.stderr
    assert "somebody" in script.read_text()
    done(run_install(str(tmp_path / "bin"), "--force"))
    assert "somebody" not in script.read_text()


def test_classes_are_run_by_their_names(tmp_path: Path) -> None:
    """kafka-run-class.sh, as Kafka's documentation dumps a segment; whatever the package."""
    home = tmp_path / "bin"
    listed = done(run_install(str(home))).decode().splitlines()
    tools = {Path(line).stem for line in listed} - {"kafka-run-class"}
    assert tools == set(_CLASSES.values())
    segment = tmp_path / f"{0:020d}.log"
    segment.write_bytes(batch_of(b"v"))

    def run_script(*command: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [home / command[0], *command[1:]],
            capture_output=True,
            check=False,
            timeout=60,
            cwd=ROOT,
        )

    dumped = run_script("kafka-dump-log.sh", "--files", str(segment))
    assert b"baseOffset: 0" in done(dumped)
    for package in ("kafka.tools", "org.apache.kafka.tools"):
        name = f"{package}.DumpLogSegments"
        again = run_script("kafka-run-class.sh", name, "--files", str(segment))
        assert done(again) == dumped.stdout
    for unknown in (("kafka.Kafka",), ()):
        refused = run_script("kafka-run-class.sh", *unknown)
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert b"USAGE:" in refused.stderr
        assert b"DumpLogSegments" in refused.stderr


def run_install(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return run_plain("compat", "install", *arguments)
