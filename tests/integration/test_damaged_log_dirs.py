"""Goal: one flipped bit in the root of a log directory costs no service, and the end of a daemon
that cannot prove what was there is final, with the command that helps.
Method: the real process and the real doctor; bits of real files flipped between two lives.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

from kafkalog.__main__ import UNUSABLE_LOG_DIRS_EXIT
from tests.integration.daemon import ROOT, START_SECONDS, Daemon
from tests.integration.http_world import until

if TYPE_CHECKING:
    from pathlib import Path


def flip(path: Path, position: int) -> bytes:
    """The bytes that the file has then."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    return bytes(data)


def refused_start(daemon: Daemon) -> str:
    """The log of a start that ends by itself, as no service manager repeats it."""
    daemon.start(wait=False)
    assert daemon.process is not None
    assert daemon.process.wait(30) == UNUSABLE_LOG_DIRS_EXIT
    daemon.process = None
    return daemon.log_path.read_text()


def probe(daemon: Daemon) -> dict[str, str]:
    """What /readyz says; nothing while the port is not open yet."""
    try:
        answer: dict[str, str] = daemon.request("GET", "/readyz").json
    except OSError:
        return {}
    return answer


def test_bits_of_both_files(tmp_path: Path) -> None:
    """Goal: repaired beside a whole directory; without one it ends, the doctor helps, it starts.
    Method: a bit of each file of one of two directories, then of both registries.
    """
    daemon = Daemon(tmp_path, log_dirs=2)
    with daemon:
        daemon.create_topic("t", 2)
        for partition in range(2):
            daemon.produce_text(f"t/partitions/{partition}", "v")
    registry, meta = (daemon.log_dirs[0] / n for n in ("kafkalog.registry", "meta.properties"))
    whole = registry.read_bytes()
    damaged = [flip(registry, 40), flip(meta, meta.read_bytes().index(b"cluster.id=") + 15)]
    with daemon:
        assert [len(daemon.fetch_all("t", partition)) for partition in range(2)] == [1, 1]
        ready = daemon.request("GET", "/readyz").json
        assert (ready["offline_log_dirs"], ready["offline_partitions"]) == (0, 0)
        text = daemon.request("GET", "/metrics").body.decode()
        for file in ("kafkalog.registry", "meta.properties"):
            assert re.search(rf'log_dir_files_repaired_total{{.*"{file}".*}} 1.0', text)
    assert registry.read_bytes() == whole
    assert [path.with_name(f"{path.name}.damaged").read_bytes() for path in (registry, meta)] == (
        damaged
    )

    registries = [path / "kafkalog.registry" for path in daemon.log_dirs]
    for each in registries:
        flip(each, 40)
    assert "Remedy: kafkalog doctor --repair" in refused_start(daemon)
    daemon.overrides["unusable.log.dirs.wait"] = "true"
    daemon.start(wait=False)
    until(lambda: "start_refused" in probe(daemon), seconds=START_SECONDS)
    assert daemon.request("GET", "/livez").status == 200
    told = re.search(
        r"Remedy: kafkalog (doctor --repair .*?) \. It", probe(daemon)["start_refused"]
    )
    assert told is not None
    done = subprocess.run(
        [sys.executable, "-m", "kafkalog", *shlex.split(told[1])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert daemon.stop() == UNUSABLE_LOG_DIRS_EXIT
    assert (done.returncode, done.stderr) == (0, "")
    for each in registries:
        assert f"info: {each}: one bit of it has flipped" in done.stdout
        assert each.read_bytes() == whole
    with daemon:
        assert [len(daemon.fetch_all("t", partition)) for partition in range(2)] == [1, 1]
