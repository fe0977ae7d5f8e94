"""Goal: the units of deploy/systemd are what systemd understands, and locked up.
Method: systemd-analyze on copies whose program is there; what the units say about each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.operate.tools import ROOT, run, tool

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.operate

UNITS = ROOT / "deploy" / "systemd"
NAMES = ("kafkalog.service", "kafkalog@.service")
PROGRAM = "/opt/kafkalog/.venv/bin/kafkalog"
EXPOSURE_MAX = 30  # tenths


@pytest.fixture
def analyze() -> str:
    """Its path."""
    return tool("systemd-analyze", "apt-get install systemd")


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """The units with a program that every machine has."""
    for name in NAMES:
        text = (UNITS / name).read_text()
        assert PROGRAM in text
        (tmp_path / name).write_text(text.replace(PROGRAM, "/bin/true"))
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_verify_has_nothing_to_say(analyze: str, units: Path, name: str) -> None:
    """Goal: no unknown key, no wrong value.
    Method: verify, whose warnings do not show in its status; then a unit with a wrong key.
    """
    unit = units / name
    done = run(analyze, "verify", unit)
    about = [line for line in (done.stdout + done.stderr).splitlines() if "kafkalog" in line]
    assert (done.returncode, about) == (0, [])
    unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSeconds="))
    assert "WatchdogSeconds" in run(analyze, "verify", unit).stderr


@pytest.mark.parametrize("name", NAMES)
def test_exposure_is_low(analyze: str, units: Path, name: str) -> None:
    """Goal: at most 3.0 of 10.
    Method: security with a threshold; the same without its capability bounds fails one of 1.4.
    """
    unit = units / name
    arguments = ("security", "--offline=true", "--no-pager")
    done = run(analyze, *arguments, f"--threshold={EXPOSURE_MAX}", unit)
    assert done.returncode == 0, done.stdout[-200:]
    assert run(analyze, *arguments, "--threshold=5", unit).returncode != 0


def test_the_instance_differs_in_its_places_alone() -> None:
    """Goal: what is locked up in one is in the other.
    Method: every line that is not a place of files.
    """
    one, several = ((UNITS / name).read_text().splitlines() for name in NAMES)
    assert len(one) == len(several)
    differing = [
        left.split("=")[0]
        for left, right in zip(one, several, strict=True)
        if left != right and not left.startswith("#")
    ]
    assert differing == [
        "Description",
        "ExecStart",
        "EnvironmentFile",
        "StateDirectory",
        "WorkingDirectory",
    ]
