"""Goal: a machine without Java is told what is missing and what to do. Method: Spark's own scripts
in an environment where there is none; no session, so these take no JVM.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.fleet_world import keyed_segments, plant_partition
from tests.integration.daemon import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

SCRIPTS_NEED = ("bash", "dirname", "env", "ps", "python3")
TIMEOUT_SECONDS = 90


@pytest.fixture(params=["none on PATH", "JAVA_HOME leads nowhere"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Of a process that finds no Java."""
    found = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    found["PYSPARK_PYTHON"] = sys.executable
    if request.param == "none on PATH":
        programs = tmp_path / "bin"
        programs.mkdir()
        for name in SCRIPTS_NEED:
            path = shutil.which(name)
            if path is not None:
                (programs / name).symlink_to(path)
        return found | {"PATH": str(programs)}
    return found | {"JAVA_HOME": str(tmp_path / "nowhere")}


def failure_of(environment: dict[str, str], *words: str) -> str:
    """What a program that must fail says."""
    command = [sys.executable, *words]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    return done.stderr


def test_a_job_says_what_to_install(tmp_path: Path, environment: dict[str, str]) -> None:
    """One sentence with Java's version, and that Spark is not needed."""
    plant_partition(tmp_path / "a" / "t-0", keyed_segments(1, 1))
    message = failure_of(
        environment, "-m", "kafkalog.cli.jobs.submit", "audit", "--dirs", str(tmp_path / "a")
    )
    assert "it needs Java 17 (openjdk-17-jre-headless), on PATH or by JAVA_HOME" in message
    assert "--no-spark: the same job runs in processes" in message
    assert "Traceback" not in message


def test_the_pipeline_says_what_to_install(tmp_path: Path, environment: dict[str, str]) -> None:
    """Before anything is made."""
    out = tmp_path / "out"
    message = failure_of(environment, "-m", "kafkalog", "spark", "pipeline", "--out", str(out))
    assert "it needs Java 17" in message
    assert "--no-spark" not in message
    assert not out.exists()


def test_a_session_says_what_the_handbook_explains(environment: dict[str, str]) -> None:
    """docs/spark.md has the words that a user without Java sees, which are Spark's."""
    session = "from pyspark.sql import SparkSession; SparkSession.builder.getOrCreate()"
    message = failure_of(environment, "-c", session)
    (row,) = (
        line
        for line in (ROOT / "docs" / "spark.md").read_text(encoding="utf-8").splitlines()
        if "Spark found no Java 17" in line
    )
    explained = row.split("|")[1].split("`")[1::2]
    assert any(words in message for words in explained)
