"""Goal: buffers that are freed and allocated again cost no page faults once the allocator was told.
Method: a fresh process, because the thresholds are the process's; its own fault counter.
"""

from __future__ import annotations

import subprocess
import sys

_COUNT_FAULTS = """
import resource
import numpy as np
from kafkalog.env.memory import keep_freed_memory
assert keep_freed_memory()
np.ones(8 << 20, np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    np.ones(8 << 20, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults() -> int:
    return int(
        subprocess.run(
            [sys.executable, "-c", _COUNT_FAULTS], capture_output=True, check=True
        ).stdout
    )


def test_freed_memory_is_used_again() -> None:
    """Eight buffers of 8 MiB: the pages of the first serve all."""
    assert _faults() < 50
