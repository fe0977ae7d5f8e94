"""Tools of operators: where they are, or why a test is skipped."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str, remedy: str) -> str:
    """The path of a tool, beside this interpreter or on PATH; skips with what to install."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: {remedy}")
    return found


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run to the end; the caller judges status and output."""
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=100
    )
