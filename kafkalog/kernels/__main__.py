"""`python -m kafkalog.kernels`: compile every kernel into the cache, one line per module.

Run once after installing and when building the image, so that no server start compiles anything.
"""

from __future__ import annotations

import sys

from kafkalog.kernels import warm_up
from kafkalog.kernels.cache import cache_root, remove_stale


def _show(module: str, done: int, total: int) -> None:
    """One line per module on standard output."""
    if module:
        sys.stdout.write(f"kernels {done + 1}/{total} {module}\n")
        sys.stdout.flush()


def main() -> int:
    """Compile; exit code 1 when the result cannot be kept."""
    result = warm_up(_show)
    root = cache_root()
    if root is None:
        sys.stderr.write(
            "kernels: no writable cache directory; every start will compile. "
            "Set KAFKALOG_KERNEL_CACHE.\n"
        )
        return 1
    removed = remove_stale(root)
    sys.stdout.write(
        f"kernels: {result.compiled} compiled, {result.cached} cached, "
        f"{removed} stale entries removed, image {result.image}, in {root}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
