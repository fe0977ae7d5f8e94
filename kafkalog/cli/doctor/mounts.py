"""The file systems of a machine, from Linux' /proc/self/mountinfo. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One of them. ``options`` are the mount's and the file system's together."""

    point: str
    kind: str
    options: frozenset[str]


def parse_mounts(text: str) -> list[Mount]:
    """In the order of the file: a later one on the same point lies over the earlier one."""
    mounts = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields, rest = left.split(" "), right.split(" ")
        if not separator or len(fields) < 6 or len(rest) < 3:
            continue  # no line of this file
        point = _OCTAL.sub(lambda found: chr(int(found[1], 8)), fields[4])
        options = {*fields[5].split(","), *rest[2].split(",")}
        mounts.append(Mount(point, rest[0], frozenset(options)))
    return mounts


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """The one that holds an absolute path without links."""
    found = None
    for mount in mounts:
        inside = mount.point.rstrip("/") + "/"
        is_nearer = found is None or len(mount.point) >= len(found.point)
        if f"{path}/".startswith(inside) and is_nearer:
            found = mount
    return found
