"""A session that a page shows, run as it stands: ``$ command`` and what it prints.

``.venv/bin/python -m tests.integration.documented_session docs/tutorial/first-steps.md`` runs a
page beside a daemon of its own and writes into it what the commands print now; a test compares
instead. Commands run one after the other in a directory that has the daemon's data in ./data; a
command's lines go to the terminal, so both of its outputs count.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.integration.daemon import ROOT, Daemon
from tests.operate.documents import FIRST, blocks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

ADDRESS = "127.0.0.1:8082"
_ADDRESSES = re.compile(r"(?:127\.0\.0\.1|localhost):8082")
_SECONDS = 60.0
_BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)
_PROMPT = "$ "
# Directories of the reader's machine, which are below the session's own in a test.
_OF_THE_READER = re.compile(
    r"(?<![\w.$:~-])/(?:archive|backup|data|disk|kafka|tmp)\d*(?=[/\s,'\"]|$)"
)
# What differs from run to run: moments, milliseconds since 1970, checksums, seconds of a clean.
_VARIABLE = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z"), "MOMENT"),
    (re.compile(r"\b1\d{12}\b"), "MILLISECONDS"),
    (re.compile(r"\bcrc: \d+"), "crc: CHECKSUM"),
    (re.compile(r"(?<=  )\d+\.\d$", re.MULTILINE), "SECONDS"),
)


class Step(NamedTuple):
    """A command, and what the page says that it prints, with line ends; None: it does not say."""

    command: str
    output: str | None


def steps_of(text: str) -> list[Step]:
    """All of a page, in its order: commands of sessions, and blocks of commands as one."""
    found: list[Step] = []
    for language, block, reason in blocks_of(text):
        if reason or language not in ("console", "sh", FIRST):
            continue
        if language != "console":
            found.append(Step(f"set -e\n{block}", None))
            continue
        for line in block.splitlines(keepends=True):
            if line.startswith(_PROMPT):
                found.append(Step(line.removeprefix(_PROMPT).rstrip("\n"), ""))
            else:
                found[-1] = found[-1]._replace(output=f"{found[-1].output}{line}")
    return found


def with_outputs(text: str, outputs: Sequence[str]) -> str:
    """The page with these in the place of what the commands of its sessions print."""
    left = iter(outputs)

    def block(found: re.Match[str]) -> str:
        commands = [line for line in found[0].splitlines() if line.startswith(_PROMPT)]
        return "".join(f"{command}\n{next(left)}" for command in commands)

    return _BLOCK.sub(block, text)


def without_variables(output: str) -> str:
    """The same for each run."""
    for pattern, name in _VARIABLE:
        output = pattern.sub(name, output)
    return output


def as_here(text: str, daemon: Daemon, directory: Path) -> str:
    """With the daemon's address, and directories below this one."""
    text = _ADDRESSES.sub(f"127.0.0.1:{daemon.port}", text)
    return _OF_THE_READER.sub(rf"{directory}\g<0>", text)


def run_session(commands: Sequence[str], daemon: Daemon, directory: Path) -> list[str]:
    """What each prints, standard error too; AssertionError at the first that fails."""
    binaries = directory / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for path in (binaries / "activate", directory / ".bashrc"):
        path.touch()
    program = binaries / "kafkalog"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m kafkalog "$@"\n')
    program.chmod(0o755)
    here = f"127.0.0.1:{daemon.port}"
    environment = {
        **os.environ,
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(directory),
        "BASH_ENV": str(directory / ".bashrc"),  # variables that a command leaves to later ones
        "KAFKALOG_URL": f"http://{here}",
        "KAFKALOG_OUTPUT": "table",  # as at the reader's terminal
        "LC_ALL": "C.UTF-8",
    }
    outputs = []
    for command in commands:
        inside = as_here(command, daemon, directory)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", inside],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        outputs.append(done.stdout.replace(here, ADDRESS).replace(str(directory), ""))
    return outputs


def outputs_of(steps: Sequence[Step], directory: Path) -> list[str]:
    """Of a session beside a daemon that has its data below the directory.

    Its first check of retention comes late, so that no check comes between two commands.
    """
    daemon = Daemon(directory / "daemon", log_initial_task_delay_ms="300000")
    daemon.log_dirs = [directory / "data"]
    with daemon:
        return run_session([step.command for step in steps], daemon, directory)


def main(pages: Sequence[str]) -> None:
    """Rewrite pages."""
    for name in pages:
        page = Path(name)
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as directory:
            outputs = outputs_of(steps_of(text), Path(directory))
        shown = [
            output
            for step, output in zip(steps_of(text), outputs, strict=True)
            if step.output is not None
        ]
        page.write_text(with_outputs(text, shown), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
