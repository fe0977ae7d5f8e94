"""The daemon, but while a gate file exists, a partition named in it is not loaded or backed up.

``python -m tests.integration.gated_daemon GATE server ...``
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kafkalog.__main__ import main
from kafkalog.env.system_filesystem import SystemFilesystem


def _gate(gate: Path) -> None:
    """The first file that a load asks for, and a backup's links, come late: as on a slow disk."""
    real_exists, real_link = SystemFilesystem.exists, SystemFilesystem.link

    def wait(path: str) -> None:
        while gate.exists() and gate.read_text() in path:
            time.sleep(0.01)

    def exists(self: SystemFilesystem, path: str) -> bool:
        if path.endswith("/partition.metadata"):
            wait(path)
        return real_exists(self, path)

    def link(self: SystemFilesystem, source: str, target: str) -> None:
        wait(source)
        real_link(self, source, target)

    SystemFilesystem.exists = exists  # type: ignore[method-assign] # the whole point
    SystemFilesystem.link = link  # type: ignore[method-assign]


if __name__ == "__main__":
    _gate(Path(sys.argv.pop(1)))
    main()
