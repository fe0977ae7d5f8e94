"""Goal: a sink that waits for a disk holds up its own calls, and nobody else's.
Method: a real daemon whose syncs of one partition do not end as long as a gate is shut.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import TEXT, Answer, Daemon

if TYPE_CHECKING:
    from pathlib import Path

STATE = "__sink_state-0"


class GatedDaemon(Daemon):
    """The state of its sinks is not synced while the gate is shut."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, log_dirs=2)
        self.gate = root / "gate"

    def command(self) -> list[str]:
        python, _, _, *rest = super().command()
        return [python, "-m", "tests.integration.gated_daemon", str(self.gate), *rest]

    def shut(self) -> None:
        """At once for the next sync."""
        made = self.gate.with_suffix(".new")
        made.write_text(f"sync /{STATE}/")
        made.rename(self.gate)

    def commit(self) -> Answer:
        """Of nothing: only its decision needs the disk."""
        body = {"batch_id": 1, "winners": []}
        return self.request("POST", "/v1/sinks/q:commit", body, timeout=60)


@pytest.mark.timeout(120)
def test_commits_that_wait_for_a_disk_hold_up_no_other_call(tmp_path: Path) -> None:
    """Goal: a driver that repeats its commit takes no thread from others, and is told to wait.
    Method: six commits of one batch while the disk hangs; large appends to the other disk, a topic.
    """
    daemon = GatedDaemon(tmp_path)
    with daemon, ThreadPoolExecutor(6) as threads:
        daemon.create_topic("t", 2)
        begin = {"batch_id": 1, "partition_id": 0}
        assert daemon.request("POST", "/v1/sinks/q:begin", begin).status == 200
        (state_dir,) = (each for each in daemon.log_dirs if (each / STATE).exists())
        (there,) = (number for number in (0, 1) if not (state_dir / f"t-{number}").exists())
        daemon.shut()
        commits = [threads.submit(daemon.commit) for _ in range(6)]
        deadline = time.monotonic() + 60
        for _ in range(3):
            records = {"records": [{"value": "x" * 900_000}]}
            left = deadline - time.monotonic()
            path = f"/topics/t/partitions/{there}"
            answer = daemon.request("POST", path, records, {"Content-Type": TEXT}, timeout=left)
            assert answer.status == 200, answer.body
        assert daemon.request("GET", "/v1/sinks/q", timeout=5).json["state"] == "open"
        for refused in islice(as_completed(commits, timeout=60), 5):
            answer = refused.result()
            assert (answer.status, answer.json["error_code"]) == (503, 50304)
            assert "Another call of query q is at work" in answer.json["message"]
            assert int(answer.headers["Retry-After"]) >= 1
        daemon.gate.unlink()
        assert [each.result().status for each in commits].count(200) == 1
        assert daemon.commit().status == 200
