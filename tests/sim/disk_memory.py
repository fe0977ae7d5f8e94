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

# Innermost last: the disks that were made inside; a weak reference does not keep one alive.
_scopes: list[list[weakref.ref[SimFilesystem]]] = []


def note_disk(disk: SimFilesystem) -> None:
    """A disk was made."""
    if _scopes:
        _scopes[-1].append(weakref.ref(disk))


@contextmanager
def disposing_of_disks() -> Iterator[None]:
    """Take the memory of the disks made inside, but of those that are kept by a cache."""
    made: list[weakref.ref[SimFilesystem]] = []
    _scopes.append(made)
    try:
        yield
    finally:
        innermost = _scopes.pop()
        assert innermost is made
        for reference in made:
            disk = reference()
            if disk is not None and not disk.is_kept:
                disk.dispose()
