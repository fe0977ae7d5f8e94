"""Goal: what the README, client.md, http-produce.md, back-up-and-restore.md and the programs of
write-an-application.md show works when pasted.
Method: the blocks, word for word but for port and variables, beside a daemon.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from kafkalog.server.supervision import CLIENT_URL, first_steps
from tests.integration.daemon import ROOT, Daemon
from tests.integration.documented_session import as_here, run_session, without_variables
from tests.integration.test_backup import manifest_of
from tests.integration.tls_world import Authority
from tests.operate.documents import blocks

if TYPE_CHECKING:
    from pathlib import Path


SESSION = "API=http://127.0.0.1:8082"
OUTPUT = "#> "


def block_of_the_readme(beginning: str) -> tuple[str, str]:
    """The commands of the block that begins so, and what they are said to print."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (block,) = [each for each in blocks if each.startswith(beginning)]
    lines = block.splitlines(keepends=True)
    printed = [line.removeprefix(OUTPUT) for line in lines if line.startswith(OUTPUT)]
    return block, "".join(printed)


@pytest.mark.gate
@pytest.mark.timeout(400)
def test_the_session_of_the_readme(tmp_path: Path) -> None:
    """M01 M10: produce, fetch, offsets, follow, delete records; every output."""
    commands, printed = block_of_the_readme(SESSION)
    with Daemon(tmp_path) as daemon:
        (outputs,) = run_session([commands], daemon, tmp_path)
    assert printed.count('"durability":"synced"') == 1
    assert without_variables(outputs) == without_variables(printed)


def test_the_first_record_of_the_readme(daemon: Daemon, tmp_path: Path) -> None:
    """What the start prints, and the command that it proposes; test_wheel.py installs."""
    commands, printed = block_of_the_readme("python3 -m venv")
    environment, install, server, produce, consume = (
        line.partition("  ")[0] for line in commands.splitlines() if not line.startswith("#")
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert environment == "python3 -m venv .venv && . .venv/bin/activate"
    assert (install, server) == ("pip install .", "kafkalog server &")
    appended, read = run_session([produce, consume], daemon, tmp_path)
    home = "/home/you/.local/share/kafkalog"
    lines = first_steps(CLIENT_URL, [home], "kafkalog").strip("\n")
    assert produce in lines
    assert printed == (
        f"Successfully installed kafkalog-{project['version']}\n{lines}\n{appended}{read}"
    )


def _run_python(blocks: list[str], daemon: Daemon, directory: Path = ROOT) -> str:
    """What the blocks print, one script after the other."""
    said = ""
    for block in blocks:
        script = block.replace("127.0.0.1:8082", f"127.0.0.1:{daemon.port}")
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", script],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        said += done.stdout
    return said


def test_the_python_of_the_page(daemon: Daemon, tmp_path: Path) -> None:
    """M01 M10: every block of client.md; the last one has addresses and files of the reader's."""
    page = ROOT / "docs/reference/client.md"
    *whole, credentials = [each.text for each in blocks(page) if each.language == "python"]
    assert len(whole) >= 3
    assert "exactly once" in _run_python(whole, daemon)
    authority = Authority(tmp_path, "ca")
    certificate, key = authority.issue("me")
    for name, path in (("ca.pem", authority.path), ("me.pem", certificate), ("me.key", key)):
        credentials = credentials.replace(f'"{name}"', repr(str(path)))
    names = (
        "import warnings\nwarnings.simplefilter('ignore')\ntoken, password = 'secret', 'secret'\n"
    )
    _run_python([names + credentials], daemon)


def blocks_of_the_application() -> list[str]:
    page = ROOT / "docs/how-to/write-an-application.md"
    return [each.text for each in blocks(page) if each.language == "python"]


def test_the_programs_of_an_application(daemon: Daemon, tmp_path: Path) -> None:
    """M01 M10: what each prints; the last but one reads on, and so prints the same again."""
    *programs, reader, _ = blocks_of_the_application()
    assert len(programs) == 1
    for program in (*programs, reader, reader):
        lines = program.splitlines(keepends=True)
        printed = "".join(line.removeprefix(OUTPUT) for line in lines if line.startswith(OUTPUT))
        # Another test has payments of its own.
        own = re.sub("(?<=[\"'/])payments(?=[\"'/])", "payments-of-one", program)
        assert _run_python([own], daemon, tmp_path) == printed


@pytest.mark.own_daemon
@pytest.mark.timeout(400)
def test_the_test_of_an_application(tmp_path: Path) -> None:
    """With a daemon of its own, which it stops."""
    *_, test = blocks_of_the_application()
    (tmp_path / "test_application.py").write_text(test)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_application.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_stream_of_the_page(daemon: Daemon, tmp_path: Path) -> None:
    """http-produce.md: the receipt of a line comes while the stream goes on."""
    (block,) = [
        each for each in blocks(ROOT / "docs/reference/http-produce.md") if each.language == "sh"
    ]
    (tmp_path / "app.ndjson").write_text('{"value":1}\n')
    command = ["bash", "-c", as_here(block.text, daemon, tmp_path)]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        receipt = process.stdout.readline()
        os.killpg(process.pid, signal.SIGTERM)
    assert receipt == '{"partition":0,"offset":0,"error_code":null,"error":null}\n'


@pytest.mark.timeout(400)
def test_the_commands_of_the_howto(tmp_path: Path) -> None:
    """A backup of all, one of a topic, a restore to two directories, a check."""
    page = (ROOT / "docs/how-to/back-up-and-restore.md").read_text()
    (script,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    with Daemon(tmp_path / "source") as daemon:
        (output,) = run_session([f"set -e -u\n{script}"], daemon, tmp_path)
    backups, data = tmp_path / "backup", tmp_path / "restored"
    assert output.count("Backup complete: ") == 2
    assert "all files are copies" in output
    assert re.search(r"^Restored\. Start: ", output, re.MULTILINE)
    assert output.splitlines()[-1].endswith("/invoices-0: sound")
    assert manifest_of(backups / "monday").is_complete
    copy = Daemon(tmp_path / "copy")
    copy.log_dirs = [data / "a", data / "b"]
    with copy:
        assert len(copy.fetch_all("invoices")) == 3
