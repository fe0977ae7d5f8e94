"""Goal: Prometheus takes rules and configuration, and the alerts fire and are silent in time.
Method: promtool on the deployed files, and on rules with one threshold or guard changed.
"""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.operate.prometheus import DEPLOYED, kit_directory

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.prometheus

# What somebody might break, and a case must notice: the text in the rules, and what it becomes.
BREAKS = (
    ("up{job=\"kafkalog\"} == 0", "up{job=\"kafkalog\"} == 2"),
    ("offlinereplicacount{job=\"kafkalog\"}", "offlinereplicacount"),
    ("increase(kafkalog_fetch_refusals_total", "0 * increase(kafkalog_fetch_refusals_total"),
    ("or kafkalog_fetch_refusals_total", "and kafkalog_fetch_refusals_total"),
    ("(kafkalog_fetch_refusals_total{error=\"CorruptBatch\"}", "(kafkalog_fetch_refusals_total"),
    ("capacity_bytes < 0.15", "capacity_bytes < 0.17"),
    (" or kafkalog_log_dir_full == 1", ""),
    ("[6h], 86400)", "[6h], 864000)"),
    ("< 0.4\n", "< 4\n"),
    ("> 2\n", "> 1\n"),
    ("and on (job, instance) time() - process_start_time_seconds > 900\n", "\n"),
    ("unless on (job, instance) kafkalog_broker_state{state=\"recovery\"} == 1\n", "\n"),
    ("time() + 3600", "time() + 60"),
    ("+ 0.25, 0.95)", "+ 0.05, 0.95)"),
    ("seconds < 7200", "seconds < 0"),
    ("> 0.855", "> 0.95"),
    ("and kafkalog_cleaner_tombstone_batches > 0", ""),
    ("and on (job, instance) time() - process_start_time_seconds < 600\n", "\n"),
    ("left_ratio < 0.2", "left_ratio < 0.4"),
    ("min_over_time(kafkalog_group", "max_over_time(kafkalog_group"),
    ("> 0.01\n", "> 0.001\n"),
    ("{method=\"POST\",route", "{route"),
)  # fmt: skip


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [kit_directory() / "promtool", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_configuration() -> None:
    done = promtool("check", "config", DEPLOYED / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "30 rules found" in done.stdout


def test_the_cases() -> None:
    """Each alert fires when it must, says what it says, and else is silent."""
    done = promtool("test", "rules", DEPLOYED / "kafkalog.rules.test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("before", "after"), BREAKS)
def test_the_cases_notice(tmp_path: Path, before: str, after: str) -> None:
    text = (DEPLOYED / "kafkalog.rules.yml").read_text()
    assert before in text
    (tmp_path / "kafkalog.rules.yml").write_text(text.replace(before, after))
    shutil.copy(DEPLOYED / "kafkalog.rules.test.yml", tmp_path)
    done = promtool("test", "rules", tmp_path / "kafkalog.rules.test.yml")
    assert "FAILED" in done.stdout + done.stderr
    assert "parse error" not in done.stdout + done.stderr
