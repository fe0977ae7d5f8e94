"""A Spark in this process's JVM, as the tests want it."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession


@contextmanager
def running_spark(directory: Path, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session with two cores. Fails, never skips, without Java 17.

    ``more``: settings beside ours; those of a JVM count only where none runs yet.
    """
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.fail("Spark needs Java 17: put java on PATH or set JAVA_HOME")
    from pyspark.sql import SparkSession

    patch = pytest.MonkeyPatch()
    patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    # Else the workers are the system's python3, which knows none of our packages.
    patch.setenv("PYSPARK_PYTHON", sys.executable)
    patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder
    for key, value in {**_settings(directory), **(more or {})}.items():
        builder = builder.config(key, value)
    session = builder.master("local[2]").appName("kafkalog-tests").getOrCreate()
    try:
        yield session
    finally:
        session.stop()
        patch.undo()


def _settings(directory: Path) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "local"),
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
    }
