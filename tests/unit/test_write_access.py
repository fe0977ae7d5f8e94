"""Goal: a volume of somebody else's is told with the command that gives it to the daemon.
Method: directories of root, asked about by a process of another user; as root only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkalog.env.process_facts import write_access_fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]
UID, GID = 54_321, 54_321
# The sources and the interpreter may lie where others cannot read: everything is loaded before.
ASK = """
import dataclasses, json, os, sys
sys.path.insert(0, sys.argv[1])
from kafkalog.env.process_facts import write_access_fault
os.setgroups([])
os.setgid(int(sys.argv[3]))
os.setuid(int(sys.argv[4]))
fault = write_access_fault(sys.argv[2])
print(json.dumps(None if fault is None else dataclasses.asdict(fault)))
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may ask as another user")


@pytest.fixture
def volume() -> Iterator[Path]:
    """A directory that everybody can reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def ask(path: Path, gid: int = GID, within: Sequence[str] = ()) -> dict[str, str] | None:
    """What the other user is told; ``within``: a command line that starts another."""
    done = subprocess.run(
        [*within, sys.executable, "-c", ASK, str(ROOT), str(path), str(gid), str(UID)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found is None or isinstance(found, dict)
    return found


def test_a_directory_of_root(volume: Path) -> None:
    log_dir = volume / "log 0"
    log_dir.mkdir(0o750)
    log_dir.chmod(0o750)
    fault = ask(log_dir)
    assert fault is not None
    assert (fault["path"], fault["owner"], fault["mode"]) == (str(log_dir), "0:0", "0750")
    assert fault["process"] == f"{UID}:{GID}"
    assert fault["remedy"].startswith(f"chown -R {UID}:{GID} '{log_dir}', or ")
    assert f"fsGroup: {GID}" in fault["remedy"]
    os.chown(log_dir, UID, GID)
    assert ask(log_dir) is None


def test_group_zero_as_in_the_image(volume: Path) -> None:
    """A volume that group 0 may write to serves any user of group 0 (OpenShift)."""
    log_dir = volume / "log0"
    log_dir.mkdir()
    log_dir.chmod(0o770)
    assert ask(log_dir, gid=0) is None
    log_dir.chmod(0o700)
    fault = ask(log_dir, gid=0)
    assert fault is not None
    assert f"chown -R {UID}:0 " in fault["remedy"]
    assert f"fsGroup: {UID}" in fault["remedy"], "group 0 is no group to give a volume to"


def test_a_partition_of_somebody_else(volume: Path) -> None:
    os.chown(volume, UID, GID)
    (volume / "lost+found").mkdir(0o700)
    (volume / "t-0").mkdir(0o755)
    fault = ask(volume)
    assert fault is not None
    assert fault["path"] == str(volume / "t-0")
    assert f"chown -R {UID}:{GID} {volume}" in fault["remedy"]
    os.chown(volume / "t-0", UID, GID)
    (volume / ".lock").touch(0o600)
    fault = ask(volume)
    assert fault is not None
    assert fault["path"] == str(volume / ".lock")


def test_a_directory_that_is_not_there_yet(volume: Path) -> None:
    """What has to be made is judged by where it would be made, which nobody gives away."""
    log_dir = volume / "a" / "log0"
    fault = ask(log_dir)
    assert fault is not None
    assert fault["path"] == str(volume)
    assert fault["remedy"].startswith(f"mkdir -p {log_dir} && chown -R {UID}:{GID} {log_dir}, or ")
    os.chown(volume, UID, GID)
    assert ask(volume / "a" / "log0") is None
    assert write_access_fault(str(volume / "a")) is None


def test_the_last_line_of_a_refused_start_names_the_remedy(volume: Path) -> None:
    """A newcomer reads only it: the line with the remedy stood far above."""
    log_dir = volume / "log0"
    log_dir.mkdir(0o755)
    other = ("setpriv", f"--reuid={UID}", f"--regid={GID}", "--clear-groups")
    python = (*other, sys.executable, "-m", "kafkalog")
    reachable = subprocess.run([*python, "--version"], check=False, capture_output=True, cwd=ROOT)
    if reachable.returncode != 0:
        pytest.skip("another user cannot read the interpreter or the sources")
    overrides = ("--override", f"log.dirs={log_dir}", "--override", "http.port=0")
    done = subprocess.run(
        [*python, "server", *overrides],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "HOME": str(volume)},
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["event"] == "Cannot start"
    assert (
        f"The daemon runs as {UID}:{GID} and may not write to {log_dir} (owner 0:0, mode 0755): "
        f"chown -R {UID}:{GID} {log_dir}, or in Kubernetes"
    ) in last["reason"]


# A mount of its own over the directory, as systemd's ProtectSystem=strict makes everything.
READ_ONLY = """
set -e
directory=$1; shift
mount --bind "$directory" "$directory"
mount -o remount,bind,ro "$directory"
exec "$@"
"""


def test_a_file_system_that_is_read_only(volume: Path) -> None:
    unshared = ("unshare", "--mount", "--propagation", "private")
    if subprocess.run([*unshared, "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    os.chown(volume, UID, GID)
    for log_dir in (volume, volume / "log0"):
        read_only = [*unshared, "sh", "-c", READ_ONLY, "sh", str(volume)]
        fault = ask(log_dir, within=read_only)
        assert fault is not None
        assert (fault["path"], fault["owner"]) == (str(volume), f"{UID}:{GID}")
        assert "read-only" in fault["remedy"]
        assert f"ReadWritePaths={log_dir} " in fault["remedy"]
        assert "chown" not in fault["remedy"]
