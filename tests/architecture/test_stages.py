"""Goal: no test lies in no stage, and the program that runs the stages does what it says.
Method: the selections as `make -n` prints them, on every set of markers; plans of cheap targets.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from _pytest.mark.expression import Expression

from tests.conftest import _mechanisms
from tests.integration.http_world import until
from tests.tools.stages import PLANS, Plan, Runner, Stage, read_log

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(path.name for path in (ROOT / "tests").iterdir() if any(path.glob("test_*.py")))


class Selection(NamedTuple):
    """What a line of the Makefile selects."""

    expression: Expression
    folders: frozenset[str]

    def takes(self, folder: str, markers: frozenset[str]) -> bool:
        """Whether a test of this folder with these markers is run."""

        def is_borne(name: str, /, **_: str | int | bool | None) -> bool:
            return name in markers

        return folder in self.folders and self.expression.evaluate(is_borne)


@cache
def selections(target: str) -> list[Selection]:
    """Of the test sessions of a target."""
    command = ["make", "-n", "--no-print-directory", target]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = []
    for line in printed.splitlines():
        if "-m pytest" not in line or "KILLS" in line:
            continue  # the long kills are a choice by name
        words = shlex.split(line.partition("-m pytest")[2])
        paths = [word for word in words if word.startswith("tests")]
        at = [number for number, word in enumerate(words) if word == "--ignore"]
        left_out = {words[number + 1] for number in at}
        paths = [path for path in paths if path not in left_out]
        folders = {f for f in FOLDERS if not paths or {"tests", f"tests/{f}"} & set(paths)}
        folders -= {path.removeprefix("tests/") for path in left_out}
        found.append(
            Selection(Expression.compile(words[words.index("-m") + 1]), frozenset(folders))
        )
    return found


def takes(plans: tuple[str, ...], folder: str, markers: frozenset[str]) -> bool:
    """Whether some stage of the plans runs it."""
    targets = {stage.target for plan in plans for stage in PLANS[plan].stages}
    return any(each.takes(folder, markers) for name in targets for each in selections(name))


@cache
def markers() -> list[str]:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    return [line.partition(":")[0] for line in options["markers"]]


@cache
def collected() -> list[tuple[str, frozenset[str]]]:
    """Folder and markers that occur: names in the files, of each file all subsets of two."""
    found = set()
    names = set(markers())
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        whole = re.search(r"^pytestmark = (.*(?:\n .*)*)", text, re.M)
        of_all = frozenset(set(re.findall(r"mark\.(\w+)", whole[1] if whole else "")) & names)
        here = (set(re.findall(r"pytest\.mark\.(\w+)", text)) & names) - of_all
        folder = path.relative_to(ROOT / "tests").parts[0]
        if folder == "integration":
            here.add("own_daemon")
        for count in range(3):
            found |= {(folder, of_all | set(some)) for some in itertools.combinations(here, count)}
    return sorted(found, key=str)


def test_every_test_lies_in_a_stage() -> None:
    """Goal: what no stage of the gate runs, one of nightly or weekly does."""
    lost = [each for each in collected() if not takes(("nightly", "weekly"), *each)]
    assert lost == []
    assert len(collected()) > 25


def test_nightly_holds_the_gate() -> None:
    """Goal: nothing is only in the gate; the gate holds what bears no marker; `test` no Java."""
    none = frozenset[str]()
    for folder, marked in collected():
        if takes(("gate",), folder, marked):
            assert takes(("nightly",), folder, marked), (folder, marked)
            assert "slow" not in marked
        if takes(("test",), folder, marked):
            assert not marked & {"oracle", "spark"}
            assert takes(("gate",), folder, marked)
    assert all(takes(("test",), folder, none) for folder in FOLDERS)
    assert takes(("gate",), "oracle", frozenset({"oracle", "gate"}))
    assert takes(("gate",), "spark", frozenset({"spark", "gate"}))
    assert takes(("gate",), "integration", frozenset({"own_daemon", "gate"}))
    assert not takes(("gate",), "integration", frozenset({"own_daemon"}))


def test_the_plans_fit_their_minutes() -> None:
    """Goal: the gate is planned below 20 minutes, `test` below 10, nightly below 150."""
    assert PLANS["gate"].minutes <= 15
    assert PLANS["test"].minutes <= 10
    assert PLANS["nightly"].minutes <= 150
    for plan in PLANS.values():
        names = [stage.target for stage in plan.stages]
        assert len(names) == len(set(names))


MAKEFILE = """\
good:
\t@echo good >> ran; echo "3 passed, 1 deselected in 0.01s"
bad:
\t@echo bad >> ran; echo "FAILED tests/unit/test_x.py::test_y - it broke"; \\
\techo "1 failed, 2 passed in 0.01s"; exit 1
last:
\t@echo last >> ran; cat "$$MISSION_RESULTS" 2>/dev/null; echo "5 passed in 0.01s"
"""


def plan_of(*, to_its_end: bool) -> Plan:
    good, bad, last = Stage("good", 0.1), Stage("bad", 0.1), Stage("last", 0.1)
    return Plan("tried", (((good, bad),), ((last,),)), runs_to_its_end=to_its_end)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Targets that note that they ran."""
    (tmp_path / "Makefile").write_text(MAKEFILE)
    return tmp_path


def ran(tree: Path) -> list[str]:
    """The stages that ran since the last look."""
    path = tree / "ran"
    words = path.read_text().split() if path.exists() else []
    path.write_text("")
    return words


def test_a_gate_ends_at_a_failure(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: what comes after is not run; the end of the log, the table and each closing line."""
    runner = Runner(plan_of(to_its_end=False), tree, "tree", fresh=False)
    assert not runner.run()
    assert ran(tree) == ["good", "bad"]
    capsys.readouterr()
    runner.tell()
    told = capsys.readouterr().out
    assert "| bad | FAILED | 0.0 | 0.0 | 1 failed, 2 passed in 0.01s |" in told
    assert "| last | not run |" in told
    assert "FAILED tests/unit/test_x.py::test_y - it broke" in told
    assert told.endswith("3 passed, 1 deselected in 0.01s\n1 failed, 2 passed in 0.01s\n")


def test_nightly_runs_to_its_end_and_goes_on(tree: Path) -> None:
    """Goal: what passed on this tree is not run again, but on another one, from the start, or when
    a kill came before it was noted; the summary names what failed and its log.
    """
    plan = plan_of(to_its_end=True)
    home = tree / "build" / "tried"
    for name, fresh, expected in (
        ("one", False, ["good", "bad", "last"]),
        ("one", False, ["bad"]),
        ("one", True, ["good", "bad", "last"]),
        ("other", False, ["good", "bad", "last"]),
    ):
        assert not Runner(plan, tree, name, fresh=fresh).run()
        assert ran(tree) == expected
    text = (home / "summary.md").read_text()
    assert text.startswith("# tried: 1 of 3 stages did not pass\n")
    for line in ("- Log: build/tried/bad.log", "- tests/unit/test_x.py::test_y"):
        assert line in text.splitlines()
    state = json.loads((home / "state.json").read_text())
    state["stages"] = [each for each in state["stages"] if each["target"] != "last"]
    (home / "state.json").write_text(json.dumps(state))
    (tree / "Makefile").write_text(MAKEFILE.replace("exit 1", "true"))
    assert Runner(plan, tree, "other", fresh=False).run()
    assert ran(tree) == ["bad", "last"]
    text = (home / "summary.md").read_text()
    assert text.startswith("# tried: passed\n")
    assert "- Tree: other\n" in text


def is_there(group: int) -> bool:
    """Whether a process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_interrupted_run_leaves_no_process(tree: Path) -> None:
    """Goal: SIGINT ends the stages with all they started, and nothing after them begins."""
    (tree / "Makefile").write_text("long:\n\t@echo $$PPID > pid; sleep 600\nnext:\n\t@touch ran\n")
    program = (
        "import signal, sys; from pathlib import Path; from tests.tools.stages import *;"
        # A shell ignores it in what it starts in the background, and children inherit that.
        "signal.signal(signal.SIGINT, signal.default_int_handler);"
        "plan = Plan('tried', (((Stage('long', 1), Stage('next', 1)),),), runs_to_its_end=True);"
        "Runner(plan, Path(sys.argv[1]), 'tree', fresh=False).run()"
    )
    run = subprocess.Popen([sys.executable, "-c", program, str(tree)], cwd=ROOT)
    until(lambda: (tree / "pid").exists() and (tree / "pid").read_text())
    group = int((tree / "pid").read_text())
    run.send_signal(signal.SIGINT)
    assert run.wait(60) != 0
    until(lambda: not is_there(group))
    assert not (tree / "ran").exists()


def test_logs_are_read_as_pytest_writes_them() -> None:
    """Goal: the last closing line, quiet or framed; failures and errors by name."""
    log = "ERROR tests/a.py::b - x\n= 1 error in 0.1s =\n2 failed, 1 passed in 66.00s (0:01:06)\n"
    assert read_log(log) == ("2 failed, 1 passed in 66.00s (0:01:06)", ["tests/a.py::b"])
    assert read_log("1 error in 0.10s\nno line of ours in 5 s\n") == ("1 error in 0.10s", [])


@pytest.mark.parametrize(
    ("marker", "numbers"),
    [("spark", ["M01", "M27"]), ("spark_kafka", ["M01", "M27"]), ("slow", ["M01"])],
)
def test_tests_on_spark_count_for_their_row(marker: str, numbers: list[str]) -> None:
    """M27 is what runs on Spark, whether or not a docstring says so."""
    found = {marker: "its mark"}
    item = SimpleNamespace(name="M01 of it", get_closest_marker=found.get)
    assert _mechanisms(item) == numbers  # type: ignore[arg-type] # what it needs of an item
