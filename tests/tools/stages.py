"""Stages of checks in lanes side by side: ``python -m tests.tools.stages nightly``.

A plan is a table. Its phases follow one another, the lanes of a phase go side by side, the stages
of a lane follow one another; each stage is a target of the Makefile. What a stage prints appears
with its name in front and is kept in build/<plan>/<stage>.log. At the end: a table of minutes, then
the closing line of each test session. The status is 0 only when every stage passed.

A gate ends at the first stage that fails, with its log's end. The others run to their end whatever
fails, write build/<plan>/summary.md, and begin again behind the stages that passed on the same
tree: FRESH=1 starts over. Needs nothing but Python and make: it also runs the set-up.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]
CLOSING = re.compile(r"^=*\s*(\d+ \w+(?:, \d+ \w+)* in [\d.]+s.*?)\s*=*$")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)")
TAIL_LINES = 120
# A signal between Python's look for signals and its wait for a lock does not end that wait.
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Stage:
    """A target of the Makefile; ``minutes`` is what it takes on two quiet cores, limits are three
    times that and ten minutes.
    """

    target: str
    minutes: float

    @property
    def limit_seconds(self) -> float:
        """A stage that has not ended by then hangs."""
        return (3 * self.minutes + 10) * 60


Lane = tuple[Stage, ...]


@dataclass(frozen=True)
class Plan:
    name: str
    phases: tuple[tuple[Lane, ...], ...]
    runs_to_its_end: bool = False
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def stages(self) -> list[Stage]:
        return [stage for phase in self.phases for lane in phase for stage in lane]

    @property
    def minutes(self) -> float:
        """What it takes on two quiet cores: the longest lane of each phase."""
        return sum(max(sum(s.minutes for s in lane) for lane in phase) for phase in self.phases)


CHECKS = (Stage("lint", 0.1), Stage("type", 0.6), Stage("contracts", 0.1))
SITE = Stage("docs-site", 0.2)
UNITS = Stage("suite-of-units", 5)
CRASHES = Stage("suite-of-crashes", 2.5)
DAEMONS = Stage("suite-of-daemons", 4.5)
FEW_EXAMPLES = (("HYPOTHESIS_PROFILE", "gate"),)

PLANS = {
    plan.name: plan
    for plan in (
        Plan(
            "test",
            (((Stage("test-setup", 1.5),),), ((*CHECKS, UNITS), (DAEMONS, CRASHES))),
            variables=FEW_EXAMPLES,
        ),
        Plan(
            "gate",
            (
                ((Stage("gate-setup", 2.5),),),
                (
                    (*CHECKS, SITE, UNITS),
                    (DAEMONS, Stage("oracle-smoke", 0.5), Stage("spark-smoke", 0.8), CRASHES),
                ),
            ),
            variables=FEW_EXAMPLES,
        ),
        Plan(
            "nightly",
            (
                ((Stage("nightly-setup", 2),),),
                (
                    (
                        *CHECKS,
                        SITE,
                        UNITS,
                        CRASHES,
                        Stage("slow-crashes", 25),
                        Stage("slow-of-the-rest", 15),
                        Stage("spark", 23),
                    ),
                    (
                        DAEMONS,
                        Stage("own-daemons", 16),
                        Stage("oracle", 23),
                        Stage("prometheus", 4.5),
                        Stage("console-test", 6),
                        Stage("operate", 1),
                    ),
                ),
                ((Stage("image-check", 6),),),
                ((Stage("spark-parity", 6), Stage("iceberg-readers", 6)),),
                ((Stage("bench-quick", 6),),),
                ((Stage("mission", 0.1),),),
            ),
            runs_to_its_end=True,
            variables=(("KAFKALOG_ORACLE", "required"),),
        ),
        Plan(
            "weekly",
            (((Stage("nightly-setup", 4),),), ((Stage("campaign", 90), Stage("spark-kills", 90)),)),
            runs_to_its_end=True,
        ),
    )
}


@dataclass
class Outcome:
    """How a stage ended: passed, FAILED, or "not run" when the plan ended before it."""

    target: str
    outcome: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    closing: str = ""
    failures: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether it need not be run again."""
        return self.outcome == "passed"


def read_log(text: str) -> tuple[str, list[str]]:
    """The closing line of the last test session in it, and the tests that failed."""
    closing = ""
    failures: list[str] = []
    for line in text.splitlines():
        if match := CLOSING.match(line):
            closing = match[1]
        elif match := FAILED.match(line):
            failures.append(match[1])
    return closing, failures


def table(outcomes: Iterable[Outcome]) -> list[str]:
    lines = [
        "| Stage | Outcome | Minutes | of a processor | Tests |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for each in outcomes:
        minutes = f"{each.seconds / 60:.1f} | {each.cpu_seconds / 60:.1f}"
        lines.append(f"| {each.target} | {each.outcome} | {minutes} | {each.closing} |")
    return lines


def summary(plan: Plan, outcomes: list[Outcome], tree: str, machine: str, seconds: float) -> str:
    """The summary file: machine, commit, stages, what failed and where its log is."""
    failed = [each for each in outcomes if not each.passed]
    verdict = "passed" if not failed else f"{len(failed)} of {len(outcomes)} stages did not pass"
    lines = [f"# {plan.name}: {verdict}", "", f"- Machine: {machine}", f"- Tree: {tree}"]
    lines += [f"- Minutes of this run: {seconds / 60:.1f}", "", *table(outcomes)]
    for each in failed:
        lines += ["", f"## {each.target}: {each.outcome}", ""]
        lines += [f"- Log: build/{plan.name}/{each.target}.log"]
        lines += [f"- {test}" for test in each.failures]
    return "\n".join(lines) + "\n"


def tree_of(root: Path) -> str:
    """The commit, and a digest of what differs from it: the same tree, the same text."""

    def git(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, check=True).stdout

    commit = git("rev-parse", "HEAD").decode().strip()
    digest = hashlib.sha256(git("diff", "HEAD", "--binary"))
    new = git("ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
    for name in filter(None, new):
        digest.update(name + b"\0" + (root / os.fsdecode(name)).read_bytes())
    is_clean = digest.digest() == hashlib.sha256().digest()
    return commit if is_clean else f"{commit} and changes {digest.hexdigest()[:16]}"


def machine() -> str:
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    versions = f"{platform.platform()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} processors, {gib:.0f} GiB, {versions}"


class Runner:
    """Runs a plan in a directory of its own; its state is a file that every stage renews."""

    def __init__(self, plan: Plan, root: Path, tree: str, *, fresh: bool) -> None:
        self.plan = plan
        self.root = root
        self.home = root / "build" / plan.name
        self.home.mkdir(parents=True, exist_ok=True)
        self.tree = tree
        self.outcomes = {s.target: Outcome(s.target, "not run") for s in plan.stages}
        self._state = self.home / "state.json"
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._must_end = threading.Event()
        self._running: set[int] = set()  # process groups
        if not (plan.runs_to_its_end and not fresh and self._resume()):
            for old in self.home.glob("*"):
                old.unlink()

    def _resume(self) -> bool:
        """Take over what passed on the same tree; False when there is nothing to take."""
        if not self._state.exists():
            return False
        state = json.loads(self._state.read_text(encoding="utf-8"))
        if state["tree"] != self.tree:
            return False
        for entry in state["stages"]:
            outcome = Outcome(**entry)
            if outcome.passed and outcome.target in self.outcomes:
                self.outcomes[outcome.target] = outcome
        return True

    def run(self) -> bool:
        """Everything that is left; whether every stage passed. Interrupted, it ends its stages."""
        try:
            for phase in self.plan.phases:
                lanes = [threading.Thread(target=self._run_lane, args=(lane,)) for lane in phase]
                for lane in lanes:
                    lane.start()
                for lane in lanes:
                    while lane.is_alive():
                        lane.join(LOOK_SECONDS)
        except BaseException:
            with self._lock:  # no stage is about to begin
                self._must_end.set()
                for group in list(self._running):
                    with suppress(ProcessLookupError):
                        os.killpg(group, signal.SIGTERM)
            raise
        self._save()
        return all(each.passed for each in self.outcomes.values())

    def _run_lane(self, lane: Lane) -> None:
        for stage in lane:
            is_needed = not self.outcomes[stage.target].passed or "setup" in stage.target
            if is_needed:
                with self._lock:
                    if self._must_end.is_set():
                        return
                    process = self._start(stage)
                outcome = self._follow(stage, process)
                with self._lock:
                    self.outcomes[stage.target] = outcome
                    self._save()
                if not outcome.passed and not self.plan.runs_to_its_end:
                    self._must_end.set()

    def _start(self, stage: Stage) -> subprocess.Popen[bytes]:
        self._say(f"== {stage.target}: begins, about {stage.minutes:g} min")
        environment = {**os.environ, **dict(self.plan.variables)}
        if self.plan.runs_to_its_end:
            environment["MISSION_RESULTS"] = str(self.home / "mission.jsonl")
        process = subprocess.Popen(
            ["make", "-s", "--no-print-directory", stage.target],
            cwd=self.root,
            env={
                k: v
                for k, v in environment.items()
                if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._running.add(process.pid)
        return process

    def _follow(self, stage: Stage, process: subprocess.Popen[bytes]) -> Outcome:
        started = time.monotonic()
        log = self.home / f"{stage.target}.log"
        with process:
            timer = threading.Timer(stage.limit_seconds, os.killpg, (process.pid, signal.SIGKILL))
            timer.start()
            assert process.stdout is not None
            with log.open("wb") as kept:
                for line in process.stdout:
                    kept.write(line)
                    kept.flush()
                    text = line.decode(errors="replace").rstrip()
                    self._say(f"{stage.target} | {text}")
            # With what its processes took of the processors: a busy machine changes minutes only.
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self._running.discard(process.pid)
            timer.cancel()
        seconds = time.monotonic() - started
        closing, failures = read_log(log.read_text(encoding="utf-8", errors="replace"))
        outcome = "passed" if process.returncode == 0 else "FAILED"
        if seconds > stage.limit_seconds:
            outcome = "FAILED: it was killed at its limit"
        self._say(f"== {stage.target}: {outcome} in {seconds / 60:.1f} min")
        cpu_seconds = usage.ru_utime + usage.ru_stime
        return Outcome(stage.target, outcome, seconds, cpu_seconds, closing, failures)

    def _say(self, line: str) -> None:
        print(line, flush=True)

    def _save(self) -> None:
        outcomes = list(self.outcomes.values())
        state = {"tree": self.tree, "stages": [vars(each) for each in outcomes]}
        new = self._state.with_suffix(".new")
        new.write_text(json.dumps(state, indent=1), encoding="utf-8")
        new.replace(self._state)
        if self.plan.runs_to_its_end:
            seconds = time.monotonic() - self._started
            text = summary(self.plan, outcomes, self.tree, machine(), seconds)
            (self.home / "summary.md").write_text(text, encoding="utf-8")

    def tell(self) -> None:
        """The table; of each failed stage its log's end; the closing line of each session."""
        outcomes = list(self.outcomes.values())
        for each in outcomes:
            log = self.home / f"{each.target}.log"
            if each.outcome.startswith("FAILED"):
                print(f"\n== end of {log.relative_to(self.root)}")
                lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
                print("\n".join(lines[-TAIL_LINES:]))
        print()
        print("\n".join(table(outcomes)))
        total = (time.monotonic() - self._started) / 60
        print(f"\n{self.plan.name}: {total:.1f} min in all")
        for each in outcomes:
            if each.closing:
                print(each.closing)


def main(arguments: list[str]) -> int:
    plan = PLANS[arguments[0]]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tree = tree_of(ROOT) if plan.runs_to_its_end else ""
    print(f"{plan.name}: about {plan.minutes:.0f} min on two quiet processors", flush=True)
    runner = Runner(plan, ROOT, tree, fresh=os.environ.get("FRESH") == "1")
    passed = runner.run()
    runner.tell()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
