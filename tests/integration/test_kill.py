"""Goal: kill -9 loses nothing that was acknowledged, serves nothing half written, doubles nothing.
Method: kills of a real daemon under load of a separate client; its log against what is served.
"""

from __future__ import annotations

import base64
import random
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.daemon import ROOT, Daemon

CONNECTIONS = 6
SEGMENT_BYTES = 64 << 10
TOPIC = "killed"
CLIENT = Path(__file__).with_name("kill_client.py")


@dataclass
class Expected:
    """What the client's log says, gathered over all rounds."""

    sent: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    acked: dict[int, str] = field(default_factory=dict)  # offset -> value
    synced_count: int = 0
    in_flight: int = 0

    def read(self, path: Path) -> int:
        """Take in one round's log; the number of requests that were open at the kill."""
        open_requests = 0
        for line in path.read_text().splitlines():
            kind, value, *rest = line.split(" ")
            if kind == "sent":
                stem = value.rpartition("-")[0]
                self.sent.update(f"{stem}-{index}" for index in range(5))
            elif kind == "open":
                open_requests += 1
            elif kind == "refused":
                stem = value.rpartition("-")[0]
                self.refused.update(f"{stem}-{index}" for index in range(5))
            else:
                offset = int(rest[1])
                assert offset not in self.acked, f"offset {offset} was given twice"
                self.acked[offset] = value
                self.synced_count += rest[2] == "synced"
        return open_requests


def _wait_until_kill_point(daemon: Daemon, log: Path, rng: random.Random, at_roll: bool) -> None:
    """Either the moment a new segment file appears, or a random moment under load."""
    partition = daemon.log_dirs[0] / f"{TOPIC}-0"
    deadline = time.monotonic() + 60
    enough = rng.randrange(2_000, 60_000)
    segments = len(list(partition.glob("*.log")))
    while time.monotonic() < deadline:
        written = log.stat().st_size if log.exists() else 0
        if at_roll:
            if written > 2_000 and len(list(partition.glob("*.log"))) > segments:
                return
        elif written > enough:
            return
        time.sleep(0.0005)  # the test's own pace, between looks at files of other processes
    raise AssertionError(f"the client wrote too little: {daemon.log_tail()}")


def _check(daemon: Daemon, expected: Expected, seen: dict[int, str]) -> None:
    """Everything acknowledged is there, once, whole; offsets have no hole."""
    for record in daemon.fetch_all(TOPIC, offset=len(seen)):
        value = base64.b64decode(record["value"]).decode()
        name = value.rstrip("x")
        assert len(value) == len(name) + 200, "a value is not whole"
        assert record["offset"] == len(seen), "offsets are not contiguous"
        seen[record["offset"]] = name
    for offset, value in expected.acked.items():
        assert seen.get(offset) == value, f"acknowledged offset {offset} is lost or changed"
    values = list(seen.values())
    assert len(set(values)) == len(values), "a record is there twice"
    assert set(values) <= expected.sent, "something was never sent"
    assert not set(values) & expected.refused, "a refused request was appended"


@pytest.mark.gate
@pytest.mark.parametrize(
    "kills", [3, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_nothing_acknowledged_is_lost_by_kill_minus_nine(tmp_path: Path, kills: int) -> None:
    """M01 M14: nine of ten with requests in flight, a third of them around a roll."""
    rng = random.Random(20)
    daemon = Daemon(tmp_path)
    daemon.start()
    daemon.create_topic(TOPIC, internal_segment_bytes=str(SEGMENT_BYTES))
    expected = Expected()
    seen: dict[int, str] = {}
    kills_in_flight = kills_at_roll = 0
    for kill in range(kills):
        log = tmp_path / f"client-{kill}.log"
        at_roll = kill % 3 == 0
        arguments = [str(daemon.port), TOPIC, str(log), str(kill), str(CONNECTIONS)]
        client = subprocess.Popen([sys.executable, str(CLIENT), *arguments], cwd=ROOT)
        try:
            _wait_until_kill_point(daemon, log, rng, at_roll)
            daemon.kill()
            client.wait(60)
        finally:
            client.kill()
        open_requests = expected.read(log)
        kills_in_flight += open_requests > 0
        kills_at_roll += at_roll
        daemon.start()
        _check(daemon, expected, seen)
    assert daemon.stop() == 0
    print(
        f"kills {kills}, in flight {kills_in_flight}, around a roll {kills_at_roll},"
        f" acknowledged {len(expected.acked)} ({expected.synced_count} synced), lost 0"
    )
    assert kills_in_flight >= kills * 9 // 10
    assert kills_at_roll * 3 >= kills
    assert expected.synced_count > 0
    assert len(expected.acked) > expected.synced_count
