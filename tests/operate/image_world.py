"""The image without an engine: Debian as its base, built by buildah, run in a namespace of mounts.

Needs root, buildah and mmdebstrap, and reaches what Debian's and Python's packages come from the
way this machine does: its certificates and its pip.conf are lent to the build, and are in no layer.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.daemon import ROOT, Daemon

PACKAGES = ("buildah", "mmdebstrap", "uidmap")
BASE, NAME = "localhost/kafkalog-base", "localhost/kafkalog"
DEBIAN = "bookworm"
INCLUDED = "python3,python3-venv,ca-certificates"
DEBIAN_SOURCES = Path("/etc/apt/sources.list.d/debian.sources")
LENT = (Path("/etc/ssl/certs"), Path("/etc/pip.conf"))
BUILD_SECONDS = 1500
USER, GROUP = 1000, 0
# Everything read-only but the volume and /tmp; then the user of the image, without a way back.
RUN_SCRIPT = """
set -e
root=$1 data=$2; shift 2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t tmpfs tmpfs "$root/tmp"
mount --bind "$data" "$root/var/lib/kafka/data"
mount -t proc proc "$root/proc"
exec setpriv --no-new-privs --bounding-set=-all,+sys_chroot,+setuid,+setgid \\
  chroot --userspec=$USER_AND_GROUP --groups=$GROUP "$root" env -i "$@"
"""


def call(*command: str, seconds: float = BUILD_SECONDS) -> str:
    """Run to the end; what it printed. AssertionError tells the end of its complaints."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=seconds, cwd=ROOT
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


class Image:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._buildah = [
            "buildah",
            *("--storage-driver", "vfs"),
            *("--root", str(directory / "storage"), "--runroot", str(directory / "run")),
        ]
        self.config: dict[str, Any] = {}
        self.files = Path()

    def build(self) -> None:
        root_archive = self.directory / "root.tar"
        sources = [str(DEBIAN_SOURCES)] if DEBIAN_SOURCES.exists() else []
        call(
            *("mmdebstrap", "--variant=minbase", f"--include={INCLUDED}"),
            *(DEBIAN, str(root_archive), *sources),
        )
        container = self.buildah("from", "scratch").strip()
        self.buildah("add", container, str(root_archive), "/")
        self.buildah("commit", "--format", "docker", container, BASE)
        lent = [f"--volume={path}:{path}:ro" for path in LENT if path.exists()]
        self.buildah(
            *("build", "--isolation", "chroot", "--format", "docker", "--pull-never"),
            *("--build-arg", f"BASE_IMAGE={BASE}", *lent, "--tag", NAME, str(ROOT)),
        )
        self.config = json.loads(self.buildah("inspect", "--type", "image", NAME))["Docker"][
            "config"
        ]
        container = self.buildah("from", "--pull-never", NAME).strip()
        self.files = Path(self.buildah("mount", container).strip())

    def buildah(self, *arguments: str) -> str:
        return call(*self._buildah, *arguments)

    def close(self) -> None:
        """Unmount and remove all of it, which is some gigabytes."""
        self.buildah("umount", "--all")
        self.buildah("rm", "--all")
        self.buildah("rmi", "--all", "--force")

    def command(self, data: Path, environment: dict[str, str], *command: str) -> list[str]:
        """The command line that runs the image's entry point (with its own command when empty)."""
        own = [f"{name}={value}" for name, value in environment.items()]
        chosen = command or tuple(self.config["Cmd"])
        script = RUN_SCRIPT.replace("$USER_AND_GROUP", f"{USER}:{GROUP}").replace(
            "$GROUP", str(GROUP)
        )
        return [
            *("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"),
            *(str(self.files), str(data), *self.config["Env"], *own),
            *(*self.config["Entrypoint"], *chosen),
        ]


class ImageDaemon(Daemon):
    def __init__(self, root: Path, image: Image) -> None:
        super().__init__(root)
        self.image = image
        self.data = root / "volume"
        self.settings = {"KAFKALOG_HTTP_PORT": str(self.port)}

    def command(self) -> list[str]:
        return self.image.command(self.data, self.settings)


def missing() -> str | None:
    """Why there can be no image here; None: there can."""
    if os.geteuid() != 0:
        return "building and mounting an image without an engine needs root"
    for package in PACKAGES:
        done = subprocess.run(
            ["dpkg-query", "-W", "-f=${Status}", package],
            capture_output=True,
            text=True,
            check=False,
        )
        if "ok installed" not in done.stdout:
            return f"apt-get install --no-install-recommends {' '.join(PACKAGES)}"
    return None


def image_or_skip(directory: Path) -> Image:
    """A built image; skips with what is missing."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    image = Image(directory)
    image.build()
    return image
