"""Goal: the command line does over HTTP what it says, with honest exit statuses.
Method: the real command in its own process against a real daemon; output compared to the byte; bash
itself reads what `kafkalog completion bash` prints.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from kafkalog.cli.main import make_cli
from kafkalog.client import Client, ProducerRecord
from tests.integration.client_world import CuttingProxy
from tests.integration.daemon import ROOT, Daemon, ReservedPort
from tests.integration.http_world import end_offset, until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def run(
    daemon: Daemon | None, *arguments: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    nobody = ReservedPort()
    port = nobody.number if daemon is None else daemon.port
    return run_plain(*arguments, "--url", f"http://127.0.0.1:{port}", stdin=stdin)


def run_plain(
    *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "kafkalog", *arguments],
        input=stdin,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        check=False,
        timeout=60,
    )


def done(result: subprocess.CompletedProcess[bytes]) -> bytes:
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_topics(daemon: Daemon) -> None:
    made = run(
        daemon, "topics", "create", "orders", "--partitions", "2", "--config", "retention.ms=5"
    )
    assert done(made) == b"Created topic orders.\n"
    assert b"could collide" in done(run(daemon, "topics", "create", "a.b"))
    assert done(run(daemon, "topics", "list")) == b"a.b\norders\n"
    lines = done(run(daemon, "topics", "describe", "orders")).decode().splitlines()
    assert lines[0].startswith("Topic: orders\tTopicId: ")
    assert lines[0].endswith("\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=5")
    assert lines[1].startswith("\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1")
    shown = json.loads(done(run(daemon, "topics", "describe", "orders", "--output", "json")))
    assert shown[0]["partitions_count"] == 2
    assert run(daemon, "topics", "create", "orders", "--if-not-exists").returncode == 0
    assert done(run(daemon, "topics", "delete", "a.b")) == b"Deleted topic a.b.\n"
    assert done(run(daemon, "topics", "list")) == b"orders\n"
    for arguments in (
        ("create", "orders"),
        ("create", "no/name"),
        ("create", "x", "--config", "no.such=1"),
        ("describe", "nope"),
        ("delete", "nope"),
    ):
        result = run(daemon, "topics", *arguments)
        assert result.returncode == 1
        assert result.stderr.startswith(b"Error: ")
        assert b"Traceback" not in result.stderr
    assert run(daemon, "topics", "create", "x", "--config", "novalue").returncode == 2


def test_topics_are_altered(daemon: Daemon) -> None:
    """M13 M14: configs and partitions; what is refused says why."""
    done(run(daemon, "topics", "create", "altered", "--config", "flush.ms=9"))
    alter = ("topics", "alter", "altered")
    changes = ("--config", "retention.ms=5", "--config", "cleanup.policy=compact,delete")
    altered = done(run(daemon, *alter, *changes, "--delete-config", "flush.ms"))
    assert altered.decode().splitlines() == [
        "CHANGED         BEFORE     NOW",
        "cleanup.policy  delete     compact,delete",
        "flush.ms        9          9223372036854775807",
        "retention.ms    604800000  5",
    ]
    grown = done(run(daemon, *alter, "--partitions", "3"))
    assert grown == b"CHANGED     BEFORE  NOW\npartitions  1       3\n"
    text = done(run(daemon, "topics", "describe", "altered", "--configs")).decode()
    assert (
        "PartitionCount: 3\tReplicationFactor: 1\tConfigs: cleanup.policy=compact,delete," in text
    )
    assert "All configs for topic altered are:\n" in text
    assert "\n  cleanup.policy=compact,delete " in text
    (shown,) = json.loads(
        done(run(daemon, "topics", "describe", "altered", "--configs", "--output", "json"))
    )
    assert {entry["name"] for entry in shown["configs"]} >= {"retention.ms", "flush.ms"}
    for arguments, message in (
        (("--partitions", "2"), b"currently has 3 partition(s); 2 would not be an increase."),
        (("--config", "retention.byte=5"), b"Unknown topic config name: retention.byte"),
        (("--delete-config", "no.such"), b"Unknown topic config name: no.such"),
    ):
        result = run(daemon, *alter, *arguments)
        assert result.returncode == 1
        assert message in result.stderr
    assert run(daemon, *alter).returncode == 2
    assert run(daemon, "topics", "alter", "nope", "--partitions", "2").returncode == 1


def test_configs_in_kafkas_words(daemon: Daemon) -> None:
    """M13: kafka-configs' options and lines, for a topic and for the broker."""
    done(run(daemon, "topics", "create", "worded"))
    topic = ("--topic", "worded")
    added = ("--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]")
    updated = done(run(daemon, "configs", "alter", *topic, *added))
    assert updated.decode().splitlines() == [
        "Completed updating config for topic worded.",
        "CHANGED         BEFORE     NOW",
        "cleanup.policy  delete     compact,delete",
        "retention.ms    604800000  5000",
    ]
    assert done(run(daemon, "configs", "describe", *topic)).decode().splitlines() == [
        "Dynamic configs for topic worded are:",
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:"
        "cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}",
        "  retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000}",
    ]
    done(run(daemon, "configs", "alter", *topic, "--delete-config", "retention.ms,cleanup.policy"))
    only = done(run(daemon, "configs", "describe", *topic))
    assert only == b"Dynamic configs for topic worded are:\n"
    broker = ("--broker", "--add-config", "log.retention.bytes=5")
    assert done(run(daemon, "configs", "alter", *broker)) == (
        b"Completed updating config for broker 1.\n"
        b"CHANGED              BEFORE  NOW\n"
        b"log.retention.bytes  -1      5\n"
    )
    done(run(daemon, "configs", "alter", "--broker", "--delete-config", "log.retention.bytes"))
    assert run(daemon, "configs", "describe").returncode == 2
    assert run(daemon, "configs", "describe", *topic, "--broker").returncode == 2
    assert run(daemon, "configs", "alter", *topic).returncode == 2
    assert run(daemon, "configs", "alter", *topic, "--add-config", "x").returncode == 2
    split = run(daemon, "configs", "alter", *topic, "--add-config", "cleanup.policy=compact,delete")
    assert split.returncode == 2
    assert b"a value with commas is written in brackets: key=[a,b]" in split.stderr


def test_produce_and_consume(daemon: Daemon) -> None:
    done(run(daemon, "topics", "create", "lines"))
    text = b"first\n\n\xff\xfe third\nlast"
    assert done(run(daemon, "produce", "lines", stdin=text)) == b""
    result = run(daemon, "consume", "lines", "--from-beginning", "-e")
    assert done(result) == text + b"\n"
    assert result.stderr == b"Processed a total of 4 messages\n"
    verbose = run(daemon, "produce", "lines", "-K", ":", "-v", "--acks", "1", stdin=b"k:v:w\n")
    assert done(verbose) == b"lines [0] at offset 4\n"
    form = ("--format", "jsonl", "--output", "json")
    told = run(daemon, "produce", "lines-json", *form, stdin=b'{"value":1}\n\n{"value":2}\nno\n')
    assert told.returncode == 3
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [(each["line"], each["outcome"]) for each in lines] == [
        (1, "appended"),
        (3, "appended"),
        (4, "refused"),
    ]
    assert sorted(lines[0]) == ["line", "offset", "outcome", "partition"]
    assert "Line 4" in lines[2]["error"]
    shown = run(daemon, "consume", "lines", "--offset", "4", "-e", "--print-key")
    assert done(shown) == b"k\tv:w\n"
    assert done(run(daemon, "consume", "lines", "--offset", "-2", "-e")) == b"last\nv:w\n"
    assert done(run(daemon, "consume", "lines", "--offset", "1", "--max-messages", "1")) == b"\n"
    (one,) = done(
        run(daemon, "consume", "lines", "--offset", "4", "-e", "--output", "json")
    ).splitlines()
    assert json.loads(one)["offset"] == 4
    record = {"key": "k", "value": None, "headers": [{"key": "h", "value": "x"}]}
    jsonl = json.dumps(record).encode() + b"\n"
    done(run(daemon, "produce", "lines", "--format", "jsonl", stdin=jsonl))
    assert done(run(daemon, "produce", "lines", "--acks", "0", stdin=b"quick\n")) == b""
    assert run(daemon, "produce", "lines", "-K", ":", stdin=b"no separator\n").returncode == 1
    empty = run(daemon, "produce", "lines", "-K", "", stdin=b"x\n")
    assert (empty.returncode, b"Traceback" in empty.stderr) == (2, False)
    assert run(daemon, "produce", "lines", "--partition", "9", stdin=b"x\n").returncode == 1
    assert run(daemon, "produce", "lines", "--format", "jsonl", stdin=b"{\n").returncode == 1
    both = run(daemon, "consume", "lines", "--from-beginning", "--offset", "1", "-e")
    assert both.returncode == 2
    assert b"Give either --from-beginning or --offset" in both.stderr
    assert run(daemon, "consume", "nope", "-e").returncode == 1
    assert run(daemon, "consume", "lines", "--offset", "soon").returncode == 2


def test_a_produce_that_is_refused_half_way(daemon: Daemon) -> None:
    """A line for each reason with its count, the sum, and exit 3: something was appended. The exit
    status tells partly from wholly, whichever request was the refused one.
    """
    wanted = ("--config", "quota.bytes=30000")
    done(run(daemon, "topics", "create", "brimming", *wanted))
    text = b"".join(b"line %d\n" % number for number in range(2500))
    later = run(daemon, "produce", "brimming", stdin=text)
    reason, stop, total = later.stderr.decode().splitlines()
    assert later.returncode == 3
    assert stop.startswith("Stopped at line 1001: ")
    assert reason.startswith("brimming: Topic brimming holds ")
    assert reason.endswith(" (1000 records)")
    assert total == "Records appended: 1000, refused: 1000, unknown: 0"
    assert end_offset(daemon, "brimming") == 1000
    whole = run(daemon, "produce", "brimming", stdin=text)
    assert whole.returncode == 1
    assert whole.stderr.startswith(b"Error: Topic brimming holds ")
    assert whole.stderr.endswith(b"\nRecords appended: 0, refused: 1000, unknown: 0\n")
    records = [{"value": "x", "partition": number % 2} for number in range(10)]
    mixed = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    first = run(daemon, "produce", "lines", "--format", "jsonl", stdin=mixed)
    assert first.returncode == 3
    reason, total = first.stderr.decode().splitlines()
    assert reason.startswith("lines: ")
    assert reason.endswith(" (5 records)")
    assert total == "Records appended: 5, refused: 5, unknown: 0"
    here = run(daemon, "produce", "lines", "--partition", "0", "--format", "jsonl", stdin=mixed)
    assert here.stderr == b"Records appended: 10, refused: 0, unknown: 0\n"


NO_JSON = "Line {{}} is not JSON: {}; one JSON object a line, not: {}"


def test_a_bad_line_among_good_ones(daemon: Daemon) -> None:
    """The line's number, how many were appended before it, and exit 3 when any was. What stands
    before a bad line is appended, however many requests that takes, and nothing behind it is: the
    number tells where to go on, so nobody sends the appended ones again. It counts as refused.
    """
    done(run(daemon, "topics", "create", "broken"))
    keyed, jsonl = ("-K", ":"), ("--format", "jsonl")
    pair, record = b"k:v\n", b'{"value":{"a":1}}\n'
    end = 0
    for form, good, bad, told in (
        (keyed, pair, b"bad", "Line {} has no key separator ':': bad"),
        (jsonl, record, b"bad", NO_JSON.format("Expecting value: line 1 column 1 (char 0)", "bad")),
        (jsonl, record, b"[]", "Line {} is not a JSON object"),
        (
            jsonl,
            record,
            b"[" * 100_000,
            NO_JSON.format("it is nested too deeply", "[" * 40 + "..."),
        ),
        (
            jsonl,
            record,
            b'{"vlaue":1}',
            "Line {} is not a record: Object contains unknown field `vlaue`; did you mean value? A"
            " record may have topic, key, value, partition, offset, timestamp, headers, key_format,"
            " value_format",
        ),
        (
            jsonl,
            record,
            b'{"value":"%","value_format":"base64"}',
            'Line {} is not a record: value: "%" is not base64',
        ),
    ):
        for count in (2500, 1000, 1, 0):
            text = good * count + bad + b"\n" + good
            result = run(daemon, "produce", "broken", *form, stdin=text)
            end += count
            numbers = f"Records appended: {count}, refused: 1, unknown: 0"
            assert result.stderr.decode() == f"Error: {told.format(count + 1)}\n{numbers}\n"
            assert result.returncode == (3 if count else 1)
            assert end_offset(daemon, "broken") == end
    astray = b'{"value":"a","partition":1}\n'
    mixed = run(daemon, "produce", "broken", *jsonl, stdin=record + astray + b"\nbad\n")
    reason, told, numbers = mixed.stderr.decode().splitlines()
    assert mixed.returncode == 3
    assert " (1 record" in reason
    assert told.startswith("Error: Line 4 is not JSON: ")
    assert numbers == "Records appended: 1, refused: 2, unknown: 0"
    quick = run(daemon, "produce", "broken", *keyed, "--acks", "0", stdin=pair + b"bad\n")
    assert quick.returncode == 3
    assert quick.stderr.splitlines()[-1] == b"Records sent: 1, refused: 1, unknown: 0"


@pytest.mark.parametrize("how", ["before", "after", "half"])
def test_an_answer_that_never_comes(daemon: Daemon, how: str) -> None:
    """Nobody says "not appended" of these: after a cut behind the daemon they are in the log."""
    topic = f"cut-{how}"
    done(run(daemon, "topics", "create", topic))
    appends: list[bytes] = []

    def cut(request: bytes) -> str:
        appends.append(request)
        return how if len(appends) == 2 else ""

    text = b"".join(b"line %d\n" % number for number in range(1500))
    with CuttingProxy(daemon.port, cut) as proxy:
        result = run_plain("produce", topic, "--url", proxy.url, stdin=text)
    assert result.returncode == 3
    reason, unknown, stop, numbers = result.stderr.decode().splitlines()
    assert unknown.startswith("It is not known whether lines 1001 to 1500 of the input are in ")
    assert stop.startswith("Stopped after line 1500: ")
    assert "Go on with line 1501 if lines 1001 to 1500 are in the topic, otherwise " in stop
    assert reason.startswith(f"{topic}: No answer from {proxy.url}: ")
    assert reason.endswith(" (500 records)")
    assert numbers == "Records appended: 1000, refused: 0, unknown: 500"
    assert end_offset(daemon, topic) == (1000 if how == "before" else 1500)


class Producing:
    """``produce`` in a process of its own, whose input stays open."""

    def __init__(self, url: str, *arguments: str) -> None:
        # A suite that a shell runs in the background hands down that SIGINT is ignored.
        words = ("env", "--default-signal=INT", sys.executable, "-m", "kafkalog", "produce")
        self.process = subprocess.Popen(
            [*words, *arguments, "--url", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def ended(self) -> tuple[int, bytes]:
        """Exit status and standard error."""
        _, messages = self.process.communicate(timeout=60)
        return self.process.returncode, messages


def test_a_line_is_sent_when_the_input_pauses(daemon: Daemon) -> None:
    """A reader sees it while the writer's input is still open; the end sends what is left."""
    done(run(daemon, "topics", "create", "paused"))
    producing = Producing(f"http://127.0.0.1:{daemon.port}", "paused")
    producing.write(b"line\n")
    until(lambda: end_offset(daemon, "paused") == 1, "it is not sent")
    producing.write(b"line\n")
    until(lambda: end_offset(daemon, "paused") == 2, "it is not sent")
    producing.write(b"last")
    assert producing.ended() == (0, b"Records appended: 3, refused: 0, unknown: 0\n")
    assert end_offset(daemon, "paused") == 3


def test_an_interrupt_waits_for_the_answer(daemon: Daemon) -> None:
    """Ctrl-C comes while the request is in flight: its records are appended and counted."""
    done(run(daemon, "topics", "create", "interrupted"))
    ready = threading.Event()

    def interrupt(_request: bytes) -> str:
        ready.wait(60)
        producing.process.send_signal(signal.SIGINT)
        return ""

    with CuttingProxy(daemon.port, interrupt) as proxy:
        producing = Producing(proxy.url, "interrupted")
        ready.set()
        producing.write(b"a\nb\n")
        producing.process.wait(60)
        assert producing.ended() == (130, b"Records appended: 2, refused: 0, unknown: 0\n")
    assert end_offset(daemon, "interrupted") == 2


def test_a_consume_outlives_a_restart(tmp_path: Path) -> None:
    """Each record once, across a stop and a start; two lines say what happened."""
    daemon = Daemon(tmp_path)
    with daemon:
        daemon.create_topic("t")
        daemon.produce_text("t", "before")
        url = f"http://127.0.0.1:{daemon.port}"
        words = ("consume", "t", "--from-beginning", "--max-messages", "2", "--url", url)
        consuming = subprocess.Popen(
            [sys.executable, "-u", "-m", "kafkalog", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        assert consuming.stdout is not None
        assert consuming.stderr is not None
        assert consuming.stdout.readline() == b"before\n"
        assert daemon.stop() == 0
        assert b"; waiting to read on where it was." in consuming.stderr.readline()
        daemon.start()
        daemon.produce_text("t", "after")
        out, told = consuming.communicate(timeout=60)
    assert (consuming.returncode, out) == (0, b"after\n")
    assert told.decode().splitlines() == [
        "The daemon answers again; reading goes on.",
        "Processed a total of 2 messages",
    ]


def test_what_is_consumed_can_be_produced(daemon: Daemon) -> None:
    """JSON and text as such, base64 marked; a copy has the same bytes, places and times."""
    stored: list[tuple[bytes | None, bytes | None]] = [
        (b"k", b'{"n": 1.0}'),
        (b'"k1"', b'"third"'),
        (None, "größe\n2".encode()),
        (b"\xff", b"\0\1"),
        (b"gone", None),
        (b"null", b""),
    ]
    for topic in ("original", "copy"):
        daemon.create_topic(topic, 2)
    url = f"http://127.0.0.1:{daemon.port}"
    with Client(url) as client:
        records = [
            ProducerRecord(value, key, (("h", value), ("h", key)), 1_790_000_000_000 + number)
            for number, (key, value) in enumerate(stored)
        ]
        client.produce("original", records[:1], partition=0)
        client.produce("original", records[1:], partition=1)
    words = ("--from-beginning", "-e", "--output", "json")
    lines = done(run(daemon, "consume", "original", *words))
    first, second, third, fourth, *_ = lines.decode().splitlines()
    assert first == (
        '{"topic": "original", "key": "k", "value": {"n": 1.0}, "partition": 0, "offset": 0,'
        ' "timestamp": 1790000000000, "headers": [{"key": "h", "value": {"n": 1.0}},'
        ' {"key": "h", "value": "k"}]}'
    )
    assert json.loads(second)["value"] == "third"
    assert json.loads(second)["value_format"] == "json"
    assert '"value": "größe\\n2"' in third
    assert json.loads(fourth)["value"] == "AAE="
    assert json.loads(fourth)["key_format"] == json.loads(fourth)["value_format"] == "base64"
    copied = run(daemon, "produce", "copy", "--format", "jsonl", stdin=lines)
    assert copied.stderr == b"Records appended: 6, refused: 0, unknown: 0\n"
    again = done(run(daemon, "consume", "copy", *words))
    assert again.replace(b'"topic": "copy"', b'"topic": "original"') == lines
    with Client(url) as client:
        for number in range(2):
            original, copy = (
                [record[2:] for record in client.fetch(topic, number, 0).records]
                for topic in ("original", "copy")
            )
            assert original == copy


def test_records_delete(daemon: Daemon, tmp_path: Path) -> None:
    """M10: the tool's file and its lines; exit 3 when a partition failed, 1 when all did. Nothing
    is called completed then.
    """
    done(run(daemon, "topics", "create", "deleted"))
    done(run(daemon, "produce", "deleted", stdin=b"a\nb\nc\n"))
    file = tmp_path / "offsets.json"
    entries = [{"topic": "deleted", "partition": 0, "offset": 2}]
    file.write_text(json.dumps({"partitions": entries, "version": 1}))
    result = run(daemon, "records", "delete", "--offset-json-file", str(file))
    assert done(result) == (
        b"Executing records delete operation\n"
        b"Records delete operation completed:\n"
        b"partition: deleted-0\tlow_watermark: 2\n"
    )
    entries.append({"topic": "nope", "partition": 0, "offset": 2})
    file.write_text(json.dumps({"partitions": entries, "version": 1}))
    partly = run(daemon, "records", "delete", "--offset-json-file", str(file))
    assert partly.returncode == 3
    assert b"partition: nope-0\terror: " in partly.stdout
    for form in ((), ("--output", "table"), ("--output", "name")):
        none = run(daemon, "records", "delete", "nope", "--before-offset", "1", *form)
        assert (none.returncode, none.stdout) == (1, b"")
        if "name" not in form:
            assert none.stderr == b"Error: nope-0: Topic nope does not exist\n"
    whole = ("records", "delete", "--topic", "deleted", "--before-offset")
    assert b"low_watermark: 3" in done(run(daemon, *whole, "-1"))
    assert run(daemon, "records", "delete").returncode == 2
    assert run(daemon, *whole, "1", "--offset-json-file", str(file)).returncode == 2
    for text, reason in (("{}", "partitions: "), ("words", "it is not acceptable JSON: ")):
        file.write_text(text)
        refused = run(daemon, "records", "delete", "--offset-json-file", str(file))
        assert refused.returncode == 1
        assert refused.stderr.decode().startswith(f"Error: {file}: {reason}")


def test_kafkas_own_command(daemon: Daemon, tmp_path: Path) -> None:
    """M10: kafka-delete-records: exit 0 when a partition failed, 1 for a file that it refuses."""
    done(run(daemon, "topics", "create", "compat"))
    done(run(daemon, "produce", "compat", stdin=b"a\nb\nc\n"))
    file = tmp_path / "offsets.json"
    tool = ("compat", "kafka-delete-records", "--offset-json-file", str(file))
    where = ("--bootstrap-server", f"127.0.0.1:{daemon.port}")
    partitions = '{"topic":"compat","partition":0,"offset":2,"by":"me"},'
    file.write_text(f'{{"partitions":[{partitions}{{"topic":"nope","partition":0,"offset":2}}]}}')
    partly = run_plain(*tool, *where)
    assert (partly.returncode, partly.stderr) == (0, b"")
    assert partly.stdout.decode().splitlines() == [
        "Executing records delete operation",
        "Records delete operation completed:",
        "partition: compat-0\tlow_watermark: 2",
        "partition: nope-0\terror: org.apache.kafka.common.errors."
        "UnknownTopicOrPartitionException: This server does not host this topic-partition.",
    ]
    for text, message in (
        ('{"partitions":[{"topic":"\\ud800","partition":true}]}',
         "Expected `Integer` value, received true"),
        ('{"partitions":"\\ud800"}', 'Expected JSON array, received "?"'),
        ('{"version":NaN}', "The input string is not a valid JSON"),
    ):  # fmt: skip
        file.write_text(text)
        refused = run_plain(*tool, *where)
        assert (refused.returncode, refused.stdout) == (1, b"")
        assert refused.stderr.decode() == f"{message}\n"
    file.unlink()
    missing = run_plain(*tool, *where)
    assert missing.returncode == 1
    assert missing.stderr.startswith(f"Unable to read file {file}".encode())
    assert run_plain(*tool).stderr == b'Missing required argument "[bootstrap-server]"\n'


def test_an_interrupt_is_told_by_the_exit_status(daemon: Daemon) -> None:
    """130, as from every command of a shell, without a traceback; what came is counted."""
    done(run(daemon, "topics", "create", "endless"))
    done(run(daemon, "produce", "endless", stdin=b"a\n"))
    words = ("consume", "endless", "--from-beginning", "--url", f"http://127.0.0.1:{daemon.port}")
    # A suite that a shell runs in the background hands down that SIGINT is ignored.
    interruptible = ("env", "--default-signal=INT")
    with subprocess.Popen(
        [*interruptible, sys.executable, "-m", "kafkalog", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"a\n"
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=30)
    assert process.returncode == 130
    assert messages == b"Processed a total of 1 messages\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_cannot_be_printed_is_not_counted(daemon: Daemon, unbuffered: str) -> None:
    done(run(daemon, "produce", "unprinted", stdin=b"a\n"))
    words = ("consume", "unprinted", "--from-beginning", "-e")
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "kafkalog", *words, "--url", f"http://127.0.0.1:{daemon.port}"],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            check=False,
            timeout=60,
        )
    assert result.returncode == 1
    assert result.stderr.startswith(b"Error: The output cannot be written: No space left")


def test_health(daemon: Daemon) -> None:
    assert done(run(daemon, "health")) == b"alive\n"
    assert done(run(daemon, "health", "--ready")) == b"ready\n"


def test_no_daemon() -> None:
    for arguments in (("health",), ("topics", "list"), ("consume", "x"), ("produce", "x")):
        result = run(None, *arguments, stdin=b"x\n")
        assert result.returncode == 1
        assert b"No answer from http://127.0.0.1:" in result.stderr
        assert b"Traceback" not in result.stderr


def test_a_rotten_batch_is_named(daemon: Daemon) -> None:
    daemon.create_topic("rotten")
    for letter in "abc":
        daemon.produce_text("rotten", letter * 100)
    path = daemon.log_dirs[0] / "rotten-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[data.index(b"b" * 100) + 5] ^= 4
    path.write_bytes(data)
    met = run(daemon, "consume", "rotten", "--from-beginning", "-e")
    assert (met.returncode, met.stdout) == (1, b"a" * 100 + b"\n")
    assert met.stderr.decode().splitlines()[-1] == (
        "Error: Partition rotten-0: A stored record batch is corrupt and is not served: offset 1."
        " `kafkalog segments verify` checks its files, `kafkalog runbooks describe rotten-record`"
        " says what to do. To read on after it: --partition 0 --offset 2"
    )
    behind = run(daemon, "consume", "rotten", "--partition", "0", "--offset", "2", "-e")
    assert done(behind) == b"c" * 100 + b"\n"


def completed(*words: str) -> list[str]:
    environment = {
        "_KAFKALOG_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("kafkalog", *words)),
        "COMP_CWORD": str(len(words)),
    }
    finished = run_plain(environment=environment)
    assert finished.stderr == b""
    lines = finished.stdout.decode().splitlines()
    return [line.partition(",")[2] for line in lines if line]


def test_words_of_commands_topics_and_configs(daemon: Daemon) -> None:
    daemon.create_topic("shelf")
    daemon.create_topic("shell")
    url = ("--url", f"http://127.0.0.1:{daemon.port}")
    assert completed("top") == ["topics"]
    assert completed("ref") == []
    assert "describe" in completed("topics", "")
    assert completed("topics", "describe", *url, "shelf") == ["shelf"]
    assert completed("configs", "describe", *url, "she") == ["shelf", "shell"]
    assert completed("configs", "describe", *url, "--topic", "she") == ["shelf", "shell"]
    assert completed("configs", "alter", "t", "--config", "retention.m") == ["retention.ms="]
    assert completed("topics", "create", "t", "--config", "retention.m") == ["retention.ms="]
    nobody = ("--url", "http://127.0.0.1:1")
    assert completed("topics", "describe", *nobody, "she") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_of_shells(shell: str) -> None:
    result = CliRunner().invoke(make_cli(), ["completion", shell])
    assert result.exit_code == 0
    assert "_KAFKALOG_COMPLETE" in result.stdout
    if shell == "bash":
        command = ["bash", "-n", "-c", result.stdout]
        assert subprocess.run(command, check=False, timeout=30).returncode == 0
    assert CliRunner().invoke(make_cli(), ["completion", "cmd"]).exit_code == 2
