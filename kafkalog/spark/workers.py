"""Python workers of Spark: processes that serve one task after the other."""

from __future__ import annotations

import functools
import gc


@functools.cache
def settle_worker() -> None:
    """Once a process, behind its imports.

    PySpark collects garbage after each task; numba's and pyarrow's objects, which stay, cost a
    third of a small task each time unless they are left out.
    """
    gc.collect()
    gc.freeze()
