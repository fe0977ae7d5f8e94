"""Goal: Spark finds the source by its name wherever a program runs.
Method: the editable installation that `make setup` makes, in a new environment beside the locked
requirements; a Spark of its own in another directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
FOLDERS = ("kafkalog", "pyspark_kafkalog", "requirements")
BUILD = "from setuptools import build_meta; print(build_meta.build_editable({!r}))"
QUERY = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.read.format("kafkalog").option("subscribe", "a").load("/nowhere").columns)
spark.stop()
"""


def run(command: list[str], directory: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_an_editable_installation_is_found_from_another_directory(tmp_path: Path) -> None:
    sources, elsewhere, new = (tmp_path / name for name in ("sources", "elsewhere", "venv"))
    for each in FOLDERS:
        shutil.copytree(ROOT / each, sources / each, ignore=shutil.ignore_patterns("__pycache__"))
    for each in FILES:
        shutil.copy(ROOT / each, sources)
    elsewhere.mkdir()
    built = run([sys.executable, "-c", BUILD.format(str(tmp_path))], sources, PYTHONPATH="")
    run([sys.executable, "-m", "venv", "--without-pip", str(new)], elsewhere)
    packages = new / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    with zipfile.ZipFile(tmp_path / built.splitlines()[-1]) as packed:
        packed.extractall(packages)
    (packages / "locked.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", "utf-8")
    python = str(new / "bin" / "python")
    found = run(
        [python, "-c", QUERY],
        elsewhere,
        PYTHONPATH="",
        PYSPARK_PYTHON=python,
        PYSPARK_DRIVER_PYTHON=python,
        SPARK_LOCAL_IP="127.0.0.1",
    )
    assert "'timestampType'" in found
