"""Goal: a log directory that is left out of log.dirs costs its partitions their service, not their
records.
Method: a daemon that is started with two directories, with one, and with two again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.integration.daemon import Daemon
from tests.integration.http_world import refused

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS = 2


def test_an_entry_of_log_dirs_is_left_out(tmp_path: Path) -> None:
    """503/50303 for its partition, also to appends; with both directories all is there."""
    daemon = Daemon(tmp_path, log_dirs=2)
    with daemon:
        daemon.create_topic("t", PARTITIONS)
        for partition in range(PARTITIONS):
            daemon.produce_text(f"t/partitions/{partition}", "v")
    both = daemon.log_dirs
    lost = next(number for number in range(PARTITIONS) if (both[0] / f"t-{number}").exists())
    daemon.log_dirs = both[1:]
    with daemon:
        path = f"/topics/t/partitions/{lost}"
        refused(daemon.request("POST", path, {"records": [{"value": "dg=="}]}), 503, 50303)
        assert daemon.request("GET", "/readyz").json["offline_partitions"] == 1
        assert f"(last at {both[0]})" in daemon.log_tail()
    daemon.log_dirs = both
    with daemon:
        for partition in range(PARTITIONS):
            assert len(daemon.fetch_all("t", partition)) == 1


def test_records_without_key_go_where_they_are_served(tmp_path: Path) -> None:
    """No request is refused that names neither partition nor key, while one is served."""
    daemon = Daemon(tmp_path, log_dirs=2)
    with daemon:
        daemon.create_topic("t", 4)
    daemon.log_dirs = daemon.log_dirs[1:]
    with daemon:
        used = {daemon.produce_text("t", "v")["offsets"][0]["partition"] for _ in range(12)}
    assert used == {number for number in range(4) if (daemon.log_dirs[0] / f"t-{number}").exists()}
