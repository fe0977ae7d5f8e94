"""Which daemons of this machine are starting: their processes have not opened a port yet.

A shell that starts a daemon in the background runs the next command at once; on a busy machine the
port opens many seconds later. Until then only the process shows that there will be a daemon. Reads
/proc (Linux) and touches no disk; what another user may not see is not found.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

_START_SECONDS_MAX = 180.0  # an older process without a port is stopping, or hangs
_LISTEN = "0A"
_ADDRESS_FIELD, _STATE_FIELD, _INODE_FIELD = 1, 3, 9  # of /proc/net/tcp
_START_TIME_FIELD = 22  # of /proc/PID/stat, from 1, in ticks after the boot


def starting_daemons(port: int) -> list[int]:
    """Process ids of ``kafkalog server`` that are younger than 180 s and may be about to listen.

    Those that listen on other ports only, or whose command line names another, are left out. One
    that listens on ``port`` is not: it may have opened it after the caller was refused.
    """
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
        and _is_meant(entry, port)
        and _is_young(entry)
        and _may_open(entry, port)
    ]


def _is_meant(process: Path, port: int) -> bool:
    """Whether Python runs ``kafkalog server``, as a script or with -m, and not at another port."""
    words = _text(process / "cmdline").split("\0")
    if not os.path.basename(words[0]).startswith("python"):
        return False
    is_daemon = any(
        os.path.basename(program) == "kafkalog" and command == "server"
        for program, command in pairwise(words)
    )
    named = {word.rpartition("=")[2] for word in words if "http.port=" in word}
    return is_daemon and named <= {str(port)}


def _is_young(process: Path) -> bool:
    fields = _text(process / "stat").rpartition(")")[2].split()  # the name may hold spaces
    if not fields:
        return False
    began = int(fields[_START_TIME_FIELD - 3]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began < _START_SECONDS_MAX


def _may_open(process: Path, port: int) -> bool:
    """False also for a process that has ended, or whose descriptors this user may not see."""
    ports = {}  # by the link of a descriptor
    for name in ("tcp", "tcp6"):
        for line in _text(process / "net" / name).splitlines()[1:]:
            fields = line.split()
            if fields[_STATE_FIELD] == _LISTEN:
                number = int(fields[_ADDRESS_FIELD].rpartition(":")[2], 16)
                ports[f"socket:[{fields[_INODE_FIELD]}]"] = number
    try:
        descriptors = list((process / "fd").iterdir())
    except OSError:
        return False
    own = set()
    for descriptor in descriptors:
        with suppress(OSError):  # closed meanwhile
            own.add(ports.get(os.readlink(descriptor)))
    own.discard(None)
    return not own or port in own


def _text(file: Path) -> str:
    """Empty for a process that has ended."""
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
