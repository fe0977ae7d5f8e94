"""Session-wide rules of the suite: required tools may not be missing; mechanisms are recorded."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.integration.daemon import Daemon
from tests.sim.simulation_memory import ending_simulations

if TYPE_CHECKING:
    from collections.abc import Generator

MECHANISM = re.compile(r"\bM\d\d\b")
# Marker -> variable that says "required" where nothing may be skipped.
REQUIREMENTS = {
    "oracle": "KAFKALOG_ORACLE",
    "operate": "KAFKALOG_OPERATE",
    "console": "KAFKALOG_CONSOLE",
    "image": "KAFKALOG_IMAGE",
}
SPARK = "M27"
SPARK_MARKERS = ("spark", "spark_kafka")
BUILD = Path(__file__).resolve().parents[1] / "build"
RESULTS = Path(os.environ.get("MISSION_RESULTS", BUILD / "mission.jsonl"))

# Runs must be repeatable on noisy machines: no per-example deadline, a fixed seed unless asked.
hypothesis.settings.register_profile(
    "default", deadline=None, derandomize=True, print_blob=True, max_examples=100
)
hypothesis.settings.register_profile(
    "gate", deadline=None, derandomize=True, print_blob=True, max_examples=25
)
hypothesis.settings.register_profile("deep", deadline=None, print_blob=True, max_examples=5000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

_lines: list[str] = []


def _mechanisms(item: pytest.Item) -> list[str]:
    """Numbers named in the test's own name or docstring, and M27 of every test on Spark."""
    text = item.name
    if isinstance(item, pytest.Function):
        text += " " + (item.function.__doc__ or "")
        if item.cls is not None:
            text += " " + (item.cls.__doc__ or "")
    named = set(MECHANISM.findall(text))
    if any(item.get_closest_marker(marker) for marker in SPARK_MARKERS):
        named.add(SPARK)
    return sorted(named)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where what it misses is required; note the mechanisms."""
    report = yield
    for marker, variable in REQUIREMENTS.items():
        required = os.environ.get(variable) == "required"
        if report.skipped and required and item.get_closest_marker(marker):
            report.outcome = "failed"
            report.longrepr = f"{variable}=required, but the test was skipped: {report.longrepr}"
    if report.when == "call" or report.outcome != "passed":
        mechanisms = _mechanisms(item)
        if mechanisms:
            entry = {"test": item.nodeid, "outcome": report.outcome, "mechanisms": mechanisms}
            _lines.append(json.dumps(entry))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Simulations end with the test that made them."""
    with ending_simulations():
        return (yield)


def pytest_addoption(parser: pytest.Parser) -> None:
    """A bound of what a session may start: a start is more than a second of a processor."""
    parser.addoption("--most-daemons", type=int, default=None, help="fail above so many starts")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Append what this session saw for `make mission`; fail one that started too many daemons."""
    if _lines:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        with RESULTS.open("a", encoding="utf-8") as results:
            results.write("\n".join(_lines) + "\n")
    most = session.config.getoption("--most-daemons")
    if most is not None and Daemon.starts > most and not session.exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many daemons were started."""
    most = terminalreporter.config.getoption("--most-daemons")
    if most is not None:
        terminalreporter.write_line(f"{Daemon.starts} starts of a daemon, at most {most}")
        if Daemon.starts > most:
            terminalreporter.write_line(
                "FAILED: share the fixture `daemon` or mark the tests own_daemon"
            )
