"""Goal: a real daemon holds no more descriptors than the setting says, whatever the segments.
Method: /proc/PID/fd while partitions with many small segments are filled, read and kept.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.integration.daemon import Daemon
from tests.integration.http_world import append, batch_of

if TYPE_CHECKING:
    from pathlib import Path

BOUND = 16
PARTITIONS = 25
SEGMENTS = 4
SLACK = 12  # what a flush or a request holds just now


def open_files(daemon: Daemon) -> list[str]:
    """What the descriptors of the process lead to, but for connections: they come and go."""
    assert daemon.process is not None
    home = f"/proc/{daemon.process.pid}/fd"
    found = []
    for number in os.listdir(home):
        try:
            target = os.readlink(f"{home}/{number}")
        except FileNotFoundError:
            continue  # closed since the listing
        if not target.startswith("socket:"):
            found.append(target)
    return found


def test_descriptors_stay_under_the_setting(tmp_path: Path) -> None:
    """M28: 100 segments of three files each, 16 kept open; also after a start."""
    with Daemon(tmp_path, log_dir_max_open_files=str(BOUND)) as daemon:
        base = len(open_files(daemon))
        daemon.create_topic("many", PARTITIONS, internal_segment_bytes="1500")
        for _ in range(SEGMENTS):
            for partition in range(PARTITIONS):
                batch = batch_of(b"x" * 1000)
                assert append(daemon, "many", batch, partition=partition).status == 200
        logs = list(daemon.log_dirs[0].glob("many-*/*.log"))
        assert len(logs) == PARTITIONS * SEGMENTS
        for partition in range(PARTITIONS):
            for offset in range(SEGMENTS):
                path = f"/v1/topics/many/partitions/{partition}/batches?offset={offset}"
                assert daemon.request("GET", path).status == 200
        assert len(open_files(daemon)) <= base + BOUND + SLACK
        daemon.stop()
        daemon.start()
        assert len(open_files(daemon)) <= base + BOUND + SLACK
        assert append(daemon, "many", batch_of(b"more"), partition=7).status == 200
