"""Goal: a wheel serves where it was just installed, without a compiler and without compiling.
Method: the wheel as `make wheel` builds it, in a new environment beside the locked requirements.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import ROOT, Daemon
from tests.operate.image_world import BUILD_SECONDS, call

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.image, pytest.mark.timeout(3000)]

BUILD = "from setuptools import build_meta; print(build_meta.build_wheel({!r}))"
NEEDED = ("kafkalog", "pyspark_kafkalog", "requirements", "docs/runbooks")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of what git knows: nothing of this directory's earlier builds gets in."""
    sources, built = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("dist")
    files = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
    for name in filter(None, call("git", "ls-files", "-z", *NEEDED, *files).split("\0")):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, sources / name, follow_symlinks=False)
    done = subprocess.run(
        [sys.executable, "-c", BUILD.format(str(built))],
        cwd=sources,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return built / done.stdout.splitlines()[-1]


class InstalledDaemon(Daemon):
    """Of another environment; -P keeps the repository, where it runs, off the path."""

    python = ""

    def command(self) -> list[str]:
        return [self.python, "-P", *super().command()[1:]]


def test_it_serves_at_once(wheel: Path, tmp_path: Path) -> None:
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.endswith(f"-{tag}-{tag}-linux_x86_64.whl")
    new = tmp_path / "venv"
    call(sys.executable, "-m", "venv", "--without-pip", str(new))
    packages = new / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(packages)
    metadata = next(packages.glob("kafkalog-*/METADATA")).read_text("utf-8")
    assert all(f"Requires-Dist: {name}==" in metadata for name in ("numba", "llvmlite", "numpy"))
    # The locked requirements are the next place to look: the wheel's own kafkalog comes first.
    (packages / "locked.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", "utf-8")
    home = tmp_path / "home"
    home.mkdir()
    daemon = InstalledDaemon(
        tmp_path, environment={"PATH": "/nowhere", "HOME": str(home), "PYTHONPATH": ""}
    )
    daemon.python = str(new / "bin" / "python")
    with daemon:
        daemon.create_topic("kept")
        daemon.produce_text("kept", "a", "b")
        assert len(daemon.fetch_all("kept")) == 2
    lines = [json.loads(line) for line in daemon.log_path.read_text().splitlines()]
    (kernels,) = [line for line in lines if line["event"] == "Kernels are ready"]
    assert (kernels["compiled"], kernels["image"]) == (0, "loaded")
    assert list(home.iterdir()) == []
