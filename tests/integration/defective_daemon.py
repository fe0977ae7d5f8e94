"""The daemon with a defect: what lists its tasks raises, with words that are nobody's business.

``python -m tests.integration.defective_daemon server ...``
"""

from __future__ import annotations

from typing import NoReturn

from kafkalog.__main__ import main
from kafkalog.broker.operations import Operations

WORDS = "zzCANARYzz"


def _tasks(_: Operations) -> NoReturn:
    raise ZeroDivisionError(WORDS)


if __name__ == "__main__":
    setattr(Operations, "tasks", _tasks)  # noqa: B010 - the whole point
    main()
