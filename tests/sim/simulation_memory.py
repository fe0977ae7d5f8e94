"""The memory of simulations: it ends with the test that made them.

A simulated thread that never ended keeps all that its frames see alive, and no collector looks into
a suspended greenlet: a run of thousands of tests would hold every manager and every disk to its end
(16 GB).
"""

from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sim.sim_filesystem import SimFilesystem
    from tests.sim.sim_threads import SimThreads

# Innermost last: what was made inside; a weak reference does not keep it alive.
_scopes: list[list[weakref.ref[SimFilesystem | SimThreads]]] = []


def note_made(part: SimFilesystem | SimThreads) -> None:
    """A disk or the threads of a simulation were made."""
    if _scopes:
        _scopes[-1].append(weakref.ref(part))


@contextmanager
def ending_simulations() -> Iterator[None]:
    """End the threads made inside and take the disks' memory, but of those kept by a cache."""
    made: list[weakref.ref[SimFilesystem | SimThreads]] = []
    _scopes.append(made)
    try:
        yield
    finally:
        innermost = _scopes.pop()
        assert innermost is made
        for reference in reversed(made):  # threads end before the disk that was made for them
            part = reference()
            if part is not None and not part.is_kept:
                part.dispose()
