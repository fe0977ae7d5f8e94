"""Goal: buffers that are freed and allocated again cost no page faults once the allocator was
told, and what a peak left is given back.
Method: a fresh process, because the thresholds are the process's; its own counters.
"""

from __future__ import annotations

import subprocess
import sys

_COUNT_FAULTS = """
import resource
import numpy as np
from kafkalog.env.process_facts import keep_freed_memory
assert keep_freed_memory()
np.ones(8 << 20, np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    np.ones(8 << 20, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _printed(program: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return [int(each) for each in done.stdout.split()]


def test_freed_memory_is_used_again() -> None:
    """Eight buffers of 8 MiB: the pages of the first serve all."""
    (faults,) = _printed(_COUNT_FAULTS)
    assert faults < 50


_GIVE_BACK = """
from kafkalog.env.process_facts import give_freed_memory_back, keep_freed_memory
from pathlib import Path
def resident(): return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
assert keep_freed_memory()
before = give_freed_memory_back(0)
assert give_freed_memory_back(before) <= before
held = [b"x" * (65_000 + number % 7) for number in range(2000)]
between = held[::50]
del held
peak = resident()
after = give_freed_memory_back(before)
assert len(between) == 40
print(peak - before, after - before, resident() - before)
"""


def test_freed_memory_is_given_back() -> None:
    """128 MB, freed around blocks that stay; asking again without growth does nothing."""
    peak, told, found = _printed(_GIVE_BACK)
    assert peak > 100_000_000
    assert told < 10_000_000
    assert abs(found - told) < 1_000_000
