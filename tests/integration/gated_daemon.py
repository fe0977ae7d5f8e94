"""The daemon, but while a gate file exists, a partition named in it is not loaded or backed up.

Text that begins with ``sync`` and a blank names files whose data is not synced, instead.

``python -m tests.integration.gated_daemon GATE server ...``. Names ``warm_up``: the start waits
before its event loop runs; ``write_access``: where it looks whether it may write. Whoever waits
makes the file GATE.reached first.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalog import kernels
from kafkalog.__main__ import main
from kafkalog.env import process_facts
from kafkalog.env.system_filesystem import SystemFile, SystemFilesystem

if TYPE_CHECKING:
    from collections.abc import Callable


def _named_in(gate: Path) -> str | None:
    """What the file says; None without it, also when it goes just now.

    An error here would be the disk's to the daemon.
    """
    try:
        return gate.read_text()
    except FileNotFoundError:
        return None


def _gate(gate: Path) -> None:
    """The first file that a load asks for, links, or syncs of data: late, as on a slow disk."""
    real_exists, real_link = SystemFilesystem.exists, SystemFilesystem.link
    real_datasync, real_warm_up = SystemFile.datasync, kernels.warm_up
    real_fault = process_facts.write_access_fault

    def wait(path: str, prefix: str = "") -> None:
        while (named := _named_in(gate)) is not None and named.startswith(prefix):
            if named.removeprefix(prefix) not in path:
                break
            gate.with_suffix(".reached").touch()
            time.sleep(0.01)

    def exists(self: SystemFilesystem, path: str) -> bool:
        if path.endswith("/partition.metadata"):
            wait(path)
        return real_exists(self, path)

    def link(self: SystemFilesystem, source: str, target: str) -> None:
        wait(source)
        real_link(self, source, target)

    def datasync(self: SystemFile) -> None:
        wait(self.path, "sync ")
        real_datasync(self)

    def warm_up(progress: Callable[[str, int, int], None] | None = None) -> kernels.WarmUp:
        wait("warm_up")
        return real_warm_up(progress)

    def write_access_fault(log_dir: str) -> process_facts.AccessFault | None:
        wait("write_access")
        return real_fault(log_dir)

    process_facts.write_access_fault = write_access_fault
    kernels.warm_up = warm_up
    SystemFilesystem.exists = exists  # type: ignore[method-assign] # the whole point
    SystemFilesystem.link = link  # type: ignore[method-assign]
    SystemFile.datasync = datasync  # type: ignore[method-assign]


if __name__ == "__main__":
    _gate(Path(sys.argv.pop(1)))
    main()
