"""Goal: a real daemon is backed up under load, or killed meanwhile; what is restored serves it all.
Method: `backup` and `restore` in their own processes, clients that append, a gate that holds links.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import convert

from kafkalog.format.disk.backup_manifest import MANIFEST_FILE, BackupManifest, decode_manifest
from kafkalog.server.admin.operations import OperationAnswer
from tests.integration.daemon import ROOT, Daemon, GatedDaemon
from tests.integration.http_world import (
    delete_records,
    end_offset,
    failed_operation,
    refused,
    until,
)
from tests.integration.test_cli_over_http import done, run, run_plain
from tests.integration.test_disk_faults import tmpfs

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT = Path(__file__).with_name("kill_client.py")
SECONDS = 30


def restore(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    return run_plain("restore", *map(str, arguments))


def manifest_of(backup: Path) -> BackupManifest:
    return decode_manifest((backup / MANIFEST_FILE).read_bytes())


def restored(backup: Path, root: Path, log_dirs: int) -> Daemon:
    """A daemon on what was restored, not started."""
    daemon = Daemon(root, log_dirs=log_dirs)
    root.mkdir()
    result = restore(backup, "--to", ",".join(map(str, daemon.log_dirs)))
    assert result.returncode == 0, result.stderr
    return daemon


def acknowledged(log: Path) -> dict[tuple[int, int], str]:
    """Value of each partition and offset that the client was told; its last line may be torn."""
    found = {}
    whole_lines, _, _ = log.read_text().rpartition("\n")
    for line in whole_lines.splitlines():
        kind, value, *rest = line.split(" ")
        if kind == "acked":
            found[int(rest[0]), int(rest[1])] = value
    return found


@pytest.mark.parametrize("how", ["link", "copy"])
def test_under_load(tmp_path: Path, how: str) -> None:
    """Appends, rolls, delete-records and retention meanwhile; then kill -9 and another disk layout.

    Every record acknowledged before is there byte for byte, and every later one below the end.
    """
    backup, log = tmp_path / "backup", tmp_path / "client.log"
    with Daemon(tmp_path / "source", log_dirs=2) as daemon:
        daemon.create_topic("t", 4, internal_segment_bytes="20000", file_delete_delay_ms="0")
        client = subprocess.Popen(
            [sys.executable, str(CLIENT), str(daemon.port), "t", str(log), "0", "4"], cwd=ROOT
        )
        until(lambda: log.exists() and len(acknowledged(log)) > 2000)
        before = acknowledged(log)
        options = ("--copy",) if how == "copy" else ()
        command = ["backup", str(backup), "--url", f"http://127.0.0.1:{daemon.port}", *options]
        said = tmp_path / "said"
        with said.open("wb") as output:
            running = subprocess.Popen(
                [sys.executable, "-m", "kafkalog", *command], cwd=ROOT, stdout=output
            )
        while running.poll() is None:
            offset = end_offset(daemon, "t", 0) // 2
            delete_records(daemon, ("t", 0, offset))
            assert daemon.request("POST", "/v1/retention:run", {}).status == 200
        assert running.returncode == 0
        assert said.read_text().splitlines()[-1].startswith(f"Backup complete: {backup}, ")
        daemon.kill()
        client.wait(SECONDS)
    after = acknowledged(log)
    manifest = manifest_of(backup)
    assert manifest.is_complete
    ends = {
        partition.topic_partition.partition: partition
        for log_dir in manifest.log_dirs
        for partition in log_dir.partitions
    }
    assert ends.keys() == {0, 1, 2, 3}
    assert all(offset < ends[partition].end_offset for partition, offset in before)
    with restored(backup, tmp_path / "copy", 3) as copy:
        for number, partition in ends.items():
            assert end_offset(copy, "t", number) == partition.end_offset
            records = copy.fetch_all("t", number)
            start = partition.log_start_offset
            assert [each["offset"] for each in records] == list(range(start, partition.end_offset))
            for each in records:
                value = base64.b64decode(each["value"]).decode()
                known = after.get((number, each["offset"]))
                assert known is None or value == known + "x" * 200
            told = [key for key in after if key[0] == number and key[1] < partition.end_offset]
            assert len(records) >= len([key for key in told if key[1] >= start])
        assert copy.produce_text("t", "again")["durability"] == "synced"


class HeldDaemon(GatedDaemon):
    """A daemon whose backup stands still before the first segment of held-0."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, log_dirs=2)
        self.backup = root / "backup"

    def prepare(self) -> HeldDaemon:
        """Two topics with closed segments; the gate is shut."""
        self.start()
        for topic in ("first", "held"):
            self.create_topic(topic, internal_segment_bytes="600")
            for number in range(9):
                self.produce_text(topic, f"{topic} {number} " + "x" * 100)
        self.gate.write_text("held-0/")
        return self

    def begin(self, backup: Path | None = None) -> Any:
        return self.request("POST", "/v1/backups", {"directory": str(backup or self.backup)})

    def wait_held(self) -> None:
        directories = [self.backup / f"log-dir-{number}" / "held-0" for number in (0, 1)]
        until(lambda: any(path.exists() for path in directories))

    def operation(self, operation_id: str) -> Any:
        answer = self.request("GET", f"/v1/operations/{operation_id}")
        assert answer.status == 200
        return answer.json


@pytest.fixture
def held(tmp_path: Path) -> Iterator[HeldDaemon]:
    daemon = HeldDaemon(tmp_path / "held").prepare()
    yield daemon
    if daemon.process is not None:
        daemon.kill()


def test_an_operation_is_looked_at_while_it_runs(held: HeldDaemon) -> None:
    """202 with a place to look; one at a time; appends and reads go on; then it ends."""
    answer = held.begin()
    assert answer.status == 202
    operation = answer.json
    assert answer.headers["Location"] == f"/v1/operations/{operation['id']}"
    assert (operation["kind"], operation["error"]) == ("backup", None)
    assert operation["details"] == {"directory": str(held.backup)}
    held.wait_held()
    running = held.operation(operation["id"])
    assert (running["state"], running["ended_ms"], running["result"]) == ("running", None, None)
    assert running["progress"]["partitions"] == 2
    assert running["progress"]["partitions_done"] == 1
    refused(held.begin(held.root / "other"), 409, 40909)
    assert held.produce_text("held", "meanwhile")["durability"] == "synced"
    (task,) = [t for t in held.request("GET", "/v1/tasks").json["tasks"] if "backup" in t["name"]]
    assert (task["name"], task["state"]) == ("kafkalog-backup", "running")
    assert not manifest_of(held.backup).is_complete
    held.gate.unlink()
    until(lambda: held.operation(operation["id"])["state"] != "running")
    ended = held.operation(operation["id"])
    assert ended["state"] == "succeeded"
    assert ended["ended_ms"] >= ended["started_ms"]
    assert ended["result"]["deleted_topics"] == []
    assert ended["progress"]["linked_files"] > 0
    assert manifest_of(held.backup).is_complete
    for body in (operation, running, ended):
        convert(body, OperationAnswer)
    refused(held.request("GET", "/v1/operations/nope"), 404, 404)


def test_a_daemon_that_is_killed_while_it_backs_up(held: HeldDaemon, tmp_path: Path) -> None:
    """The backup is none and says so; the source serves all, and the next backup is whole."""
    assert held.begin().status == 202
    held.wait_held()
    before = {topic: held.fetch_all(topic) for topic in ("first", "held")}
    held.kill()
    assert not manifest_of(held.backup).is_complete
    result = restore(held.backup, "--to", tmp_path / "nothing")
    assert result.returncode == 1
    assert b"is not complete" in result.stderr
    assert not (tmp_path / "nothing").exists()
    held.gate.unlink()
    held.start()
    assert {topic: held.fetch_all(topic) for topic in before} == before
    assert run(held, "backup", str(held.backup)).stderr.startswith(b"Error: ")  # not empty
    refused(held.begin(), 400, 40002)
    refused(held.request("POST", "/v1/backups", {"dir": str(held.backup)}), 422, 422)
    shutil.rmtree(held.backup)
    done(run(held, "backup", str(held.backup)))
    with restored(held.backup, tmp_path / "copy", 1) as copy:
        assert {topic: copy.fetch_all(topic) for topic in before} == before


def test_a_command_that_is_killed_does_not_end_the_backup(held: HeldDaemon) -> None:
    command = ["backup", str(held.backup), "--url", f"http://127.0.0.1:{held.port}"]
    process = subprocess.Popen([sys.executable, "-m", "kafkalog", *command], cwd=ROOT)
    held.wait_held()
    process.kill()
    process.wait()
    held.gate.unlink()
    until(lambda: manifest_of(held.backup).is_complete)


def test_a_daemon_that_is_stopped_while_it_backs_up(held: HeldDaemon) -> None:
    """It ends cleanly, at once, and the backup is not complete."""
    assert held.begin().status == 202
    held.wait_held()
    os.kill(held.pid, signal.SIGTERM)
    until(lambda: "Shutting down" in held.log_path.read_text())
    held.gate.unlink()
    assert held.ended(SECONDS) == 0
    assert all((path / ".kafka_cleanshutdown").exists() for path in held.log_dirs)


def test_a_target_that_goes_away(held: HeldDaemon) -> None:
    """The operation fails with its reason, the command with status 1; the daemon serves on."""
    operation = held.begin().json
    held.wait_held()
    shutil.rmtree(held.backup)
    held.gate.unlink()
    until(lambda: held.operation(operation["id"])["state"] != "running")
    failed_operation(held.operation(operation["id"]), 50011)
    assert held.request("GET", "/readyz").status == 200
    assert held.produce_text("held", "on")["durability"] == "synced"


def test_the_words_of_the_commands(held: HeldDaemon, tmp_path: Path) -> None:
    held.gate.unlink()
    said = done(run(held, "backup", str(held.backup), "--topic", "held")).decode().splitlines()
    assert len(said) == 3
    where = [line for line in said if ": 1 partitions, closed segments are hard links" in line]
    assert len(where) == 1
    assert said[-1].startswith(f"Backup complete: {held.backup}, ")
    two = tmp_path / "two"
    document = json.loads(done(run(held, "backup", str(two), "--copy", "--output", "json")))
    assert document["state"] == "succeeded"
    assert document["progress"]["linked_files"] == 0
    target = tmp_path / "restored"
    result = restore(held.backup, "--to", target)
    assert result.returncode == 0, result.stderr
    said = result.stdout.decode().splitlines()
    assert said[0].startswith(f"{target}: 1 partitions, ")
    assert said[1] == f"Restored. Start: kafkalog server --override log.dirs={target}"
    assert sorted(path.name for path in target.iterdir() if path.is_dir()) == ["held-0"]
    again = restore(held.backup, "--to", target)
    assert (again.returncode, again.stdout) == (1, b"")
    assert f"{target} is not empty" in again.stderr.decode()
    assert restore(held.backup, "--to", ",").returncode == 2
    assert restore(tmp_path / "nowhere", "--to", target).returncode == 2


def test_a_file_system_without_room(held: HeldDaemon, tmp_path: Path) -> None:
    """Refused with 507, nothing is left behind, and the next one elsewhere works."""
    held.gate.unlink()
    small = tmp_path / "small"
    with tmpfs(small, "1m"):
        refused(held.begin(small / "backup"), 507, 50701)
        assert not (small / "backup").exists()
    done(run(held, "backup", str(held.backup)))
