"""Goal: telemetry over HTTP becomes one table that every reader reads alike, and each record is in
it or in its dead letters once, whatever dies and whatever changes meanwhile.
Method: a daemon, a continuous archive and a maintenance as processes of their own, each killed in
the middle of its work; a topic that keeps a day, late readings, a schema that grows, records that
do not decode. Then the query of telemetry-into-a-lakehouse.md, word for word, by Spark, pyiceberg
and DuckDB, and all rows, against what was acknowledged. Last, the commands of that page.
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyiceberg.catalog import load_catalog

from tests.bench.machine_use import process_tree
from tests.integration.daemon import ROOT, Daemon
from tests.integration.documented_session import run_session, steps_of, without_variables
from tests.integration.http_world import until
from tests.operate.documents import blocks
from tests.spark.iceberg_session import python_of_page
from tests.spark.test_archive_survives import is_worker
from tests.spark.test_sink_survives import kill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

pytestmark = [pytest.mark.iceberg_readers, pytest.mark.timeout(900)]
PAGE = ROOT / "docs/tutorial/telemetry-into-a-lakehouse.md"
PARTITIONS = 2
DEVICES = 4
LINES = "application/x-ndjson"
OLD_DAYS = (4, 3, 2)
PATIENCE_SECONDS = 240.0
RUNS_MAX = 5  # of work that must be under way when something is killed
INT = {"type": "integer", "format": "int32"}
FIRST = {"device": {"type": "string"}, "reading": INT}
SECOND = {
    "device": {"type": "string"},
    "reading": {"type": "integer"},
    "battery": {"type": "number"},
}


class Produced(NamedTuple):
    """A record that the daemon acknowledged.

    text   its value, as it was sent
    value  what its row has; None: it is a dead letter
    """

    timestamp_ms: int
    text: str
    value: dict[str, Any] | None


class Devices:
    """Send telemetry, each record once, and remember what is where: the twin of the table."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.now = datetime.now(UTC)
        self.is_new = False  # whether devices send what only the second schema has
        self.produced: dict[tuple[int, int], Produced] = {}
        self._ends = [0] * PARTITIONS
        self._sent = 0

    def report(self, days_ago: int, count: int) -> None:
        """Readings of five hours of a day into each partition; a few do not decode."""
        begin = self.now - timedelta(days=days_ago, hours=5)
        for partition in range(PARTITIONS):
            records = []
            for number in range(count):
                at = begin + timedelta(hours=5) * number / count
                records.append(self._reading(int(at.timestamp() * 1000)))
            self._append(partition, records, "json")
            if not days_ago:
                broken = Produced(int(self.now.timestamp() * 1000), "not JSON {", None)
                self._append(partition, [broken], "text")

    def last_offset(self, partition: int, before: datetime) -> int:
        """Of the records that are older than a moment."""
        at_ms = before.timestamp() * 1000
        return max(
            offset
            for (of, offset), each in self.produced.items()
            if of == partition and each.timestamp_ms < at_ms
        )

    def answers(self) -> list[tuple[Any, ...]]:
        """What the query of the page finds."""
        groups: dict[tuple[Any, str], list[dict[str, Any]]] = {}
        for each in self.produced.values():
            if each.value is not None:
                day = datetime.fromtimestamp(each.timestamp_ms / 1000, UTC).date()
                groups.setdefault((day, each.value["device"]), []).append(each.value)
        rows = []
        for (day, device), values in sorted(groups.items()):
            charges = [each["battery"] for each in values if each["battery"] is not None]
            readings = sum(each["reading"] for each in values)
            least = min(charges, default=None)
            rows.append((day, device, len(values), readings, len(charges), least))
        return rows

    def _reading(self, at_ms: int) -> Produced:
        self._sent += 1
        number = self._sent
        value: dict[str, Any] = {"device": f"d{number % DEVICES}", "reading": number}
        match number % 40:
            case 7:
                return Produced(at_ms, json.dumps({**value, "reading": "warm"}), None)
            case 17:
                return Produced(at_ms, json.dumps({"reading": number}), None)
        if self.is_new:
            value |= {"reading": number + 2**31, "battery": number % 400 / 4}
        elif number % 40 == 27:  # one byte too early: it stays a dead letter
            return Produced(at_ms, json.dumps({**value, "reading": 2**31}), None)
        return Produced(at_ms, json.dumps(value), {"battery": None, **value})

    def _append(self, partition: int, records: Sequence[Produced], value_format: str) -> None:
        """With the offset that the first of them must get: so a try may be repeated."""
        end = self._ends[partition]
        path = f"/v1/topics/telemetry/partitions/{partition}"
        lines = [_line(each, value_format) for each in records]
        query = f"expected_offset={end}&value_format={value_format}"
        tries: list[object] = []

        def is_there() -> bool:
            try:
                answer = self._daemon.request(
                    "POST",
                    f"{path}/records?{query}",
                    "".join(lines).encode(),
                    {"Content-Type": LINES},
                )
            except (OSError, http.client.HTTPException) as error:  # the daemon was killed
                tries.append(error)
                return False
            if answer.status == 503:  # it starts
                return False
            if answer.status == 412 and tries:  # a try whose answer was lost
                (found,) = self._offsets(partition)
                assert found == end + len(records)
                return True
            assert answer.status == 200, answer.body
            assert answer.json["failed_count"] == 0, answer.body
            return True

        until(is_there, "a record could not be sent", seconds=PATIENCE_SECONDS)
        for number, each in enumerate(records):
            self.produced[partition, end + number] = each
        self._ends[partition] += len(records)

    def _offsets(self, partition: int) -> list[int]:
        """The end of the log."""
        found: list[int] = []

        def is_answered() -> bool:
            with suppress(OSError, http.client.HTTPException):
                path = f"/topics/telemetry/partitions/{partition}/offsets"
                answer = self._daemon.request("GET", path)
                if answer.status == 200:
                    found.append(answer.json["end_offset"])
            return bool(found)

        until(is_answered, seconds=PATIENCE_SECONDS)
        return found


def _line(record: Produced, value_format: str) -> str:
    value = json.dumps(record.text) if value_format == "text" else record.text
    return f'{{"timestamp":{record.timestamp_ms},"value":{value}}}\n'


class Archive:
    """``archive run --continuous`` and ``archive maintain`` of one table, as processes."""

    def __init__(self, directory: Path, daemon: Daemon) -> None:
        self._directory, self._log = directory, directory / "archive.log"
        self.table = directory / "lake" / "lake" / "telemetry"
        place = ["--iceberg", "lake.telemetry", "--warehouse", str(directory / "lake")]
        self._maintain = ["archive", "maintain", *place, "--min-files", "2", "--execute", "--yes"]
        self._run = ["archive", "run", "--url", f"http://127.0.0.1:{daemon.port}"]
        self._run += ["--topic", "telemetry", *place, "--partition-by", "day(timestamp)"]
        self._run += ["--continuous", "--max-lag", "1s", "--processes", "2"]
        self._run += ["--target-bytes", "2000", "--max-commit-bytes", "4000"]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, properties: dict[str, Any]) -> None:
        schema = self._directory / "telemetry.json"
        document = {"type": "object", "required": ["device"], "properties": properties}
        schema.write_text(json.dumps(document))
        self.process = self._started(
            [*self._run, "--value-format", "json", "--schema", str(schema)]
        )

    def start_maintenance(self) -> subprocess.Popen[bytes]:
        return self._started(self._maintain)

    def _started(self, words: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "kafkalog", *words], stdout=log, stderr=log, cwd=ROOT
            )

    def maintain(self) -> None:
        assert self.start_maintenance().wait(PATIENCE_SECONDS) == 0, self.log_tail()

    def stop(self) -> None:
        """If it runs: what is ready is committed, and the sums are printed."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(PATIENCE_SECONDS) == 0, self.log_tail()
            self.process = None

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def kill_at_a_commit(self) -> None:
        """When the metadata of its first commit is written; the catalog may not have it yet."""
        before = self.commits()
        until(lambda: self.commits() > before, "no commit came", seconds=PATIENCE_SECONDS)
        self.kill()

    def kill_worker(self) -> None:
        """One that has got its first task."""
        assert self.process is not None
        driver, workers = self.process.pid, list[int]()

        def is_there() -> bool:
            workers.extend(filter(is_worker, process_tree(driver)))
            return bool(workers)

        until(is_there, "no process of the archive works", seconds=PATIENCE_SECONDS)
        kill(workers[0])

        def is_told() -> bool:
            return "its process ended with -9" in self._log.read_text(errors="replace")

        until(is_told, "the archive did not miss it", seconds=PATIENCE_SECONDS)

    def commits(self) -> int:
        """Of the table, as far as this directory tells."""
        return len(list(self.table.glob("metadata/*.metadata.json")))

    def files(self) -> int:
        return len(list(self.table.glob("data/**/*.parquet")))

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-5000:]


class Story:
    """All of it; ``close`` leaves no process."""

    def __init__(self, directory: Path, daemon: Daemon) -> None:
        self.daemon = daemon
        self.devices = Devices(daemon)
        self.archive = Archive(directory, daemon)
        self._lake = directory / "lake"
        self._thread = ThreadPoolExecutor(1)

    def close(self) -> None:
        self.archive.kill()
        self._thread.shutdown()
        print(self.archive.log_tail())

    def partitions(self) -> list[dict[str, Any]]:
        """What the daemon says of archive and retention of each."""
        found: list[dict[str, Any]] = self.daemon.request(
            "GET", "/v1/topics/telemetry/archived-offsets"
        ).json["partitions"]
        return found

    def is_archived(self) -> bool:
        """Whether the table has all, and the daemon knows it."""
        archive = self.archive.process
        assert archive is None or archive.poll() is None, self.archive.log_tail()
        return all(each["lag"] == 0 for each in self.partitions())

    def until_archived(self) -> None:
        until(self.is_archived, "it is not archived", seconds=PATIENCE_SECONDS, pace_seconds=0.1)

    def in_the_middle(self, act: Callable[[], object], schema: dict[str, Any]) -> None:
        """Do something while the archive writes a heap of records into the table."""
        for _ in range(RUNS_MAX):
            self.archive.stop()
            for days_ago in (*OLD_DAYS, 0):
                self.devices.report(days_ago, 40)
            self.archive.start(schema)
            act()
            is_in_the_middle = not self.is_archived()
            if self.archive.process is None:
                self.archive.start(schema)
            self.until_archived()
            if is_in_the_middle:
                return
        raise AssertionError(f"all {RUNS_MAX} times it came too late")

    def while_devices_report(self, act: Callable[[], object]) -> None:
        """Do something after the first of a hundred requests was answered."""

        def report() -> None:
            for _ in range(8):
                for days_ago in (*OLD_DAYS, 1, 0):
                    self.devices.report(days_ago, 10)

        before = len(self.devices.produced)
        reports = self._thread.submit(report)
        until(lambda: len(self.devices.produced) > before)
        act()
        reports.result(PATIENCE_SECONDS)
        self.until_archived()

    def dead_letters(self) -> list[dict[str, Any]]:
        with closing(load_catalog("default", **_catalog(self._lake))) as catalog:
            table = catalog.load_table("lake.telemetry_dead_letters")
            rows: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
        return rows


def _catalog(lake: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{lake}/catalog.db", "warehouse": f"file://{lake}"}


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    """A daemon that checks retention twice a second, with the topic; no record is there yet."""
    settings: dict[str, Any] = {
        "log_retention_check_interval_ms": "500",
        "log_initial_task_delay_ms": "0",
    }
    with Daemon(tmp_path / "daemon", **settings) as daemon, closing(Story(tmp_path, daemon)) as one:
        configs = {"retention_ms": "86400000", "segment_ms": "21600000", "archive_hold": "true"}
        daemon.create_topic("telemetry", PARTITIONS, **configs)
        yield one


def retention_waits_for_the_archive(story: Story) -> None:
    """What is older than a day stays as long as no archive has it, and goes afterwards."""
    for days_ago in (*OLD_DAYS, 0):
        story.devices.report(days_ago, 40)
    done = story.daemon.request("POST", "/v1/retention:run", {})
    assert (done.status, done.json["segments"]) == (200, 0), done.body
    assert [each["log_start_offset"] for each in story.partitions()] == [0] * PARTITIONS
    assert [each["held_segments"] for each in story.partitions()] == [len(OLD_DAYS)] * PARTITIONS
    story.archive.start(FIRST)
    story.until_archived()
    day_ago = story.devices.now - timedelta(days=1)
    young = [story.devices.last_offset(number, day_ago) + 1 for number in range(PARTITIONS)]
    until(lambda: [each["log_start_offset"] for each in story.partitions()] == young)


def everything_dies(story: Story) -> None:
    """The archive, one of its processes, and the daemon between two requests of the devices."""
    story.in_the_middle(story.archive.kill_at_a_commit, FIRST)
    story.in_the_middle(story.archive.kill_worker, FIRST)

    def restart() -> None:
        story.daemon.kill()
        story.daemon.start()

    story.while_devices_report(restart)


def the_schema_grows(story: Story) -> None:
    """First the archive learns of it, then the devices; the maintenance runs beside both."""
    story.archive.stop()
    story.archive.start(SECOND)
    story.devices.is_new = True
    story.while_devices_report(story.archive.maintain)
    story.in_the_middle(story.archive.kill_at_a_commit, SECOND)
    story.archive.stop()


def the_maintenance_dies(story: Story) -> None:
    """When it has written a file, before or after its commit; the next one does the rest."""
    before = story.archive.files()
    maintenance = story.archive.start_maintenance()
    until(lambda: story.archive.files() != before or maintenance.poll() is not None)
    maintenance.kill()
    maintenance.wait()
    story.archive.maintain()


@contextmanager
def python_in(directory: Path) -> Iterator[dict[str, Any]]:
    """The names that the page's Python has defined in this directory."""
    with chdir(directory), python_of_page(PAGE, directory) as names:
        yield names


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """Of a reader, sorted by partition and offset."""
    columns = ["partition", "offset", "timestamp", "value"]
    rows = table.select(columns).to_pylist()
    return sorted(
        (
            each["partition"],
            each["offset"],
            round(each["timestamp"].timestamp() * 1000),
            tuple(sorted(each["value"].items())),
        )
        for each in rows
    )


def test_each_record_is_there_once_for_every_reader(story: Story, tmp_path: Path) -> None:
    """M01 M27: The whole story, see the module."""
    retention_waits_for_the_archive(story)
    everything_dies(story)
    the_schema_grows(story)
    the_maintenance_dies(story)
    produced = story.devices.produced
    wanted = [
        (*place, each.timestamp_ms, tuple(sorted(each.value.items())))
        for place, each in sorted(produced.items())
        if each.value is not None
    ]
    dead = story.dead_letters()
    with python_in(tmp_path) as names:
        answers = story.devices.answers()
        for reader in ("in_spark", "in_pyiceberg", "in_duckdb"):
            assert names[reader] == answers, reader
        all_rows = {
            "Spark": names["spark"].table("telemetry").toArrow(),
            "pyiceberg": names["table"].scan().to_arrow(),
            "DuckDB": names["duck"].sql("FROM telemetry").to_arrow_table(),
        }
        for reader, table in all_rows.items():
            assert rows_of(table) == wanted, reader
    poison = {place: each.text.encode() for place, each in produced.items() if each.value is None}
    assert {(each["partition"], each["offset"]): each["value"] for each in dead} == poison
    there = Counter(place[:2] for place in wanted)
    there.update((each["partition"], each["offset"]) for each in dead)
    assert there == Counter(produced.keys())
    print(f"{len(wanted)} rows, {len(dead)} dead letters")


def end(pid_file: Path) -> None:
    """A process of the page, if it is left."""
    if pid_file.exists():
        kill(int(pid_file.read_text()))


def test_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command of the page, what it shows, and its query."""
    steps = steps_of(PAGE.read_text(encoding="utf-8"))
    daemon = Daemon(tmp_path / "none")  # the page starts its own one on this port
    server = f"kafkalog server --override http.port={daemon.port} "
    try:
        commands = [each.command.replace("kafkalog server ", server) for each in steps]
        for step, output in zip(steps, run_session(commands, daemon, tmp_path), strict=True):
            if step.output is not None:
                assert without_variables(output) == without_variables(step.output), step.command
    finally:
        end(tmp_path / "archive.pid")
        end(tmp_path / "daemon.pid")
    capsys.readouterr()
    with python_in(tmp_path):
        printed = capsys.readouterr().out
    (shown,) = [each.text for each in blocks(PAGE) if each.language == "text"]
    assert printed == shown
