"""Goal: commands that change something print what changed, in every form; a person gets tables and
is asked, a script gets the lines of Kafka's tools and is not; durations and sizes have units.
Method: the real command in its own process against a real daemon, in pipes and at a terminal.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import yaml

from tests.integration.daemon import ROOT
from tests.integration.test_cli_over_http import done, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.daemon import Daemon


def at_terminal(daemon: Daemon, *words: str, answer: str = "") -> tuple[int, list[str]]:
    """Exit status and the lines that a terminal of 200 columns shows."""
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (50, 200))
    os.write(leader, answer.encode())
    with subprocess.Popen(
        [sys.executable, "-m", "kafkalog", *words, "--url", f"http://127.0.0.1:{daemon.port}"],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=ROOT,
    ) as process:
        process.wait(timeout=60)
    os.close(follower)
    shown = os.read(leader, 100_000).decode()
    os.close(leader)
    return process.returncode, shown.splitlines()


def test_tables_for_people(daemon: Daemon) -> None:
    done(run(daemon, "topics", "create", "tabled", "--partitions", "2", "--config", "flush.ms=9"))
    done(run(daemon, "produce", "tabled", "--partition", "1", stdin=b"a\nb\n"))
    _, lines = at_terminal(daemon, "topics", "list")
    assert lines[0].split() == ["TOPIC", "PARTITIONS", "OFFLINE", "CONFIGS"]
    assert ["tabled", "2", "0", "flush.ms=9"] in [line.split() for line in lines]
    _, lines = at_terminal(daemon, "topics", "describe", "tabled")
    assert lines[2].split() == ["PARTITION", "LOG", "START", "LOG", "END", "OFFSETS", "STATE"]
    assert lines[4].split() == ["1", "0", "2", "2", "served"]
    _, lines = at_terminal(daemon, "configs", "describe", "tabled")
    assert [line.split() for line in lines] == [
        ["CONFIG", "VALUE", "SOURCE"],
        ["flush.ms", "9", "DYNAMIC_TOPIC_CONFIG"],
    ]
    _, lines = at_terminal(daemon, "offsets", "get", "tabled")
    assert lines[2].split()[:3] == ["tabled", "1", "2"]
    _, lines = at_terminal(daemon, "dirs", "describe")
    assert lines[0].split()[:3] == ["DIRECTORY", "STATE", "PARTITIONS"]
    assert any(line.startswith("tabled-1 ") for line in lines)
    _, lines = at_terminal(daemon, "dirs", "describe", "--topics", "tabled,tabeld")
    assert lines[-1] == "No partition of a topic tabeld is in a log directory."


def test_scripts_get_what_they_got(daemon: Daemon) -> None:
    """Without a terminal the lines of Kafka's tools, and nothing is asked."""
    done(run(daemon, "topics", "create", "script"))
    assert b"script\n" in done(run(daemon, "topics", "list"))
    assert done(run(daemon, "topics", "describe", "script")).startswith(b"Topic: script\tTopicId: ")
    assert done(run(daemon, "offsets", "get", "script")) == b"script:0:0\n"
    assert done(run(daemon, "topics", "delete", "script")) == b"Deleted topic script.\n"


def test_names_and_documents(daemon: Daemon) -> None:
    done(run(daemon, "topics", "create", "named", "--partitions", "2"))
    for words, names in (
        (("topics", "describe", "named"), ["named"]),
        (("offsets", "get", "named"), ["named-0", "named-1"]),
        (("retention", "explain", "named"), ["named-0", "named-1"]),
        (("topics", "alter", "named", "--config", "retention.ms=7d"), ["retention.ms"]),
    ):
        assert done(run(daemon, *words, "--output", "name")).decode().splitlines() == names
    as_json = json.loads(done(run(daemon, "topics", "describe", "named", "--output", "json")))
    as_yaml = done(run(daemon, "topics", "describe", "named", "--output", "yaml"))
    assert yaml.safe_load(as_yaml) == as_json
    nameless = run(daemon, "perf", "consume", "named", "--messages", "1", "--output", "name")
    assert nameless.returncode == 2


def test_changes_are_printed(daemon: Daemon) -> None:
    done(run(daemon, "topics", "create", "changed"))
    again = done(run(daemon, "topics", "create", "changed", "--if-not-exists"))
    assert again == b"Topic changed exists: nothing was changed.\n"
    words = ("topics", "alter", "changed", "--config", "retention.ms=1d", "--partitions", "3")
    assert done(run(daemon, *words)).decode().splitlines() == [
        "CHANGED       BEFORE     NOW",
        "retention.ms  604800000  86400000",
        "partitions    1          3",
    ]
    alter = ("configs", "alter", "changed", "--config", "cleanup.policy=compact,delete")
    found = json.loads(done(run(daemon, *alter, "--output", "json")))
    assert found == {
        "entity": "topic changed",
        "changes": [
            {
                "name": "cleanup.policy",
                "before": "delete",
                "now": "compact,delete",
                "source": "DYNAMIC_TOPIC_CONFIG",
            }
        ],
    }
    same = done(run(daemon, *alter)).decode().splitlines()
    assert same[1:] == ["Nothing changed: every value is as before."]
    default = ("topics", "alter", "changed", "--config", "min.cleanable.dirty.ratio=0.5")
    kept = done(run(daemon, *default)).decode().splitlines()
    assert kept[2:] == [
        "min.cleanable.dirty.ratio: the value is as before, and now set at run time; it was the"
        " default."
    ]
    alone = run(daemon, "topics", "alter", "changed", "--config", "min.insync.replicas=2")
    assert b"min.insync.replicas has no effect. Accepted for compat" in alone.stderr
    port = run(daemon, "configs", "alter", "--broker", "--config", "http.port=1")
    assert port.stderr == (
        b"Error: http.port cannot be changed while the daemon runs: set it in server.properties and"
        b" restart\n"
    )
    hours = run(daemon, "configs", "alter", "--broker", "--config", "log.retention.hours=1")
    assert hours.stderr.endswith(
        b"in server.properties and restart, or set log.retention.ms, which works at once\n"
    )
    refused = run(
        daemon, "topics", "alter", "changed", "--config", "flush.ms=5s", "--partitions", "1"
    )
    assert refused.returncode == 1
    assert b"flush.ms  " in refused.stdout  # it is in force, whatever became of the partitions
    gone = done(run(daemon, "topics", "delete", "changed", "--output", "json"))
    assert json.loads(gone) == {"topic": "changed", "deleted": True}


def test_a_person_is_asked(daemon: Daemon) -> None:
    done(run(daemon, "topics", "create", "asked"))
    done(run(daemon, "produce", "asked", stdin=b"a\nb\n"))
    delete = ("records", "delete", "asked", "--before-offset", "1")
    status, lines = at_terminal(daemon, *delete, answer="n\n")
    assert status == 1
    assert any("Delete the records of asked-0 below offset 1? [y/N]" in line for line in lines)
    assert lines[-1].endswith("[y/N]: Nothing was changed.")  # behind the question
    assert done(run(daemon, "offsets", "get", "asked", "--at", "earliest")) == b"asked:0:0\n"
    for words, fault in (
        (("topics", "delete", "no-topic"), "no-topic"),
        (("records", "delete", "asked", "--before-offset", "9"), "above the high watermark"),
    ):
        status, lines = at_terminal(daemon, *words)
        assert status == 1
        assert lines[0].startswith("Error: ")
        assert fault in lines[0]
    status, lines = at_terminal(daemon, *delete, "--yes")
    assert (status, lines[-1].split()) == (0, ["asked", "0", "1"])
    status, lines = at_terminal(daemon, "topics", "delete", "asked", answer="y\n")
    assert (status, lines[-1].endswith("Deleted topic asked.")) == (0, True)


def test_units_are_stored_as_kafka_writes_them(daemon: Daemon) -> None:
    """What is stored and shown is the plain number, so that every version and tool reads it."""
    configs = ("--config", "retention.ms=7d", "--config", "segment.bytes=64MiB")
    done(run(daemon, "topics", "create", "units", *configs))
    shown = json.loads(done(run(daemon, "topics", "describe", "units", "--output", "json")))
    assert shown[0]["config_overrides"] == {
        "retention.ms": "604800000",
        "segment.bytes": "67108864",
    }
    done(run(daemon, "configs", "alter", "--broker", "--config", "log.retention.bytes=1GiB"))
    (entry,) = (
        one
        for one in json.loads(
            done(run(daemon, "configs", "describe", "--broker", "--output", "json"))
        )
        if one["name"] == "log.retention.bytes"
    )
    assert entry["value"] == "1073741824"
    done(run(daemon, "configs", "alter", "--broker", "--delete-config", "log.retention.bytes"))
    page = daemon.request("GET", "/console/topics/units/retention?retention.ms=1d")
    assert (page.status, b'value="1d"' in page.body) == (200, True)
    wrong = "/console/topics/units/retention?retention.ms=soon&retention.bytes=1GiB"
    page = daemon.request("GET", wrong, None, {"Accept": "text/html"})
    assert page.status == 400
    for each in (b'value="soon"', b'value="1GiB"', b"for the limits as they are", b"retained"):
        assert each in page.body
    assert daemon.request("GET", wrong).json["error_code"] == 40002
    refused = run(daemon, "topics", "alter", "units", "--config", "segment.bytes=64MB")
    assert refused.returncode == 1
    assert b"or as 1GiB, 64MiB or 16KiB" in refused.stderr


def test_a_file_of_another_form(daemon: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    for text in ('{"topics": []}', "[", ""):
        file.write_text(text)
        refused = run(daemon, "records", "delete", "--offset-json-file", str(file))
        assert refused.returncode == 1
        said = refused.stderr.decode()
        assert "body" not in said
        assert said.endswith(
            ' The form is {"partitions":[{"topic":"t","partition":0,"offset":40000}],"version":1}\n'
        )
