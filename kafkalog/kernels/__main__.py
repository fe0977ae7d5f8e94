"""``python -m kafkalog.kernels``: compile every kernel into the cache, with a progress line."""

from __future__ import annotations

import sys
import time

from kafkalog.kernels import warm_up


def main() -> None:
    """Say which module is being compiled, then the totals."""
    started = time.monotonic()

    def progress(module: str, done: int, total: int) -> None:
        end = "\n" if not sys.stdout.isatty() or done == total else "\r"
        sys.stdout.write(f"kernels: {done}/{total} {module:<20}{end}")
        sys.stdout.flush()

    sys.stdout.write("kernels: compiling, this takes about half a minute the first time\n")
    result = warm_up(progress)
    seconds = time.monotonic() - started
    sys.stdout.write(
        f"kernels: {result.compiled} compiled, {result.cached} from the cache, {seconds:.1f} s\n"
    )


if __name__ == "__main__":
    main()
