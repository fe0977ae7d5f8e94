"""The daemon, but while a gate file exists, the load of a partition named in it waits.

``python -m tests.integration.gated_daemon GATE server ...``
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kafkalog.__main__ import main
from kafkalog.env.system_filesystem import SystemFilesystem


def _gate(gate: Path) -> None:
    """The first file that the load of a partition asks for comes late, as from a slow disk."""
    real = SystemFilesystem.exists

    def exists(self: SystemFilesystem, path: str) -> bool:
        while path.endswith("/partition.metadata") and gate.exists() and gate.read_text() in path:
            time.sleep(0.01)
        return real(self, path)

    SystemFilesystem.exists = exists  # type: ignore[method-assign] # the whole point


if __name__ == "__main__":
    _gate(Path(sys.argv.pop(1)))
    main()
