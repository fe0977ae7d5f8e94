"""What the kernel counted of this process's reads and writes of storage; Linux only."""

from __future__ import annotations

from pathlib import Path

_FILE = Path("/proc/self/io")


def process_io() -> tuple[int, int] | None:
    """(bytes read, bytes written) since the process began; None where the kernel does not say.

    No disk is touched: the file is the kernel's own memory.
    """
    try:
        text = _FILE.read_text(encoding="ascii")
    except OSError:
        return None
    counts = dict(line.split(": ", 1) for line in text.splitlines())
    return int(counts["read_bytes"]), int(counts["write_bytes"])
