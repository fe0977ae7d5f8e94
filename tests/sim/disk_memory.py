"""The memory of simulated disks: it ends with the test that made them.

A simulated thread that never ended keeps all that its frames see alive, and no collector looks into
a suspended greenlet: a run of thousands of tests would hold every disk to its end (16 GB).
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sim.sim_filesystem import SimFilesystem

_alive: weakref.WeakSet[SimFilesystem] = weakref.WeakSet()


def note_disk(disk: SimFilesystem) -> None:
    """A disk was made."""
    _alive.add(disk)


@contextmanager
def disposing_of_disks() -> Iterator[None]:
    """Take the memory of the disks made inside, but of those that are kept by a cache."""
    before = set(_alive)
    try:
        yield
    finally:
        for disk in set(_alive) - before:
            if not disk.is_kept:
                disk.dispose()
