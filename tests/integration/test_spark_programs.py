"""Goal: the jobs run as programs of their own, in processes, and end well when they are told to.
Method: real processes: kafkalog, python -m, SIGTERM; a Python without pyspark.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fleet_world import contents, keyed_segments, plant_mixed, plant_partition

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_SECONDS = 90


def program(*words: str | Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def answer_of(*words: str | Path) -> Any:
    out, err = program(*words).communicate(timeout=TIMEOUT_SECONDS)
    assert err == ""
    return json.loads(out)


@pytest.mark.slow
def test_the_command_and_the_module_are_one_program(tmp_path: Path) -> None:
    """Both read the same arguments, use processes and keep standard output to the rows."""
    plant_mixed(tmp_path / "a", "orders", 2)
    words = ("--dirs", tmp_path / "a", "--output", "json", "--processes", "2")
    config = ("--config", "cleanup.policy=compact")
    command = answer_of("-m", "kafkalog", "spark", "audit", *words, *config)
    module = answer_of("-m", "kafkalog.cli.jobs.submit", "audit", "--no-spark", *words, *config)
    assert command == module
    assert command["totals"]["partitions"] == 2


def test_a_job_that_is_told_to_stop_leaves_nothing(tmp_path: Path) -> None:
    """SIGTERM ends a compaction, its processes and what it made."""
    for partition in range(40):
        plant_partition(tmp_path / "a" / f"t-{partition}", keyed_segments(2, 4))
    before = contents(tmp_path / "a")
    words = ("--dirs", tmp_path / "a", "--out", tmp_path / "out", "--processes", "2")
    job = program("-m", "kafkalog", "spark", "compact", *words, start_new_session=True)
    unfinished = tmp_path / "out.unfinished"
    for _ in until(lambda: unfinished.exists() or job.poll() is not None):
        pass
    job.send_signal(signal.SIGTERM)
    out, err = job.communicate(timeout=TIMEOUT_SECONDS)
    assert job.returncode == 130, err
    assert out == ""
    assert not unfinished.exists()
    assert not (tmp_path / "out").exists()
    assert contents(tmp_path / "a") == before
    for _ in until(lambda: not is_group_alive(job.pid)):
        pass


def is_group_alive(group: int) -> bool:
    """Whether a process of the group still runs; multiprocessing's tracker ends a little later."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def until(is_so: Any) -> Iterator[None]:
    """Looks again and again for another process's doing, for TIMEOUT_SECONDS at most."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)
        yield


def test_without_pyspark_the_message_says_what_to_do(tmp_path: Path) -> None:
    """A machine without Spark is told what to install, and that Spark is not needed."""
    plant_partition(tmp_path / "a" / "t-0", keyed_segments(1, 1))
    (tmp_path / "hidden" / "pyspark").mkdir(parents=True)
    (tmp_path / "hidden" / "pyspark" / "__init__.py").write_text("raise ImportError('hidden')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "hidden")}
    words = ("-m", "kafkalog.cli.jobs.submit", "audit", "--dirs", tmp_path / "a")
    job = program(*words, env=environment)
    _, err = job.communicate(timeout=TIMEOUT_SECONDS)
    assert job.returncode == 1
    assert "pip install 'kafkalog[spark]'" in err
    assert "--no-spark: the same job runs in processes" in err
