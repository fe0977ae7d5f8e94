"""Which Python the workers of Spark are, where kafkalog starts the session."""

from __future__ import annotations

import os
import sys


def choose_workers() -> None:
    """Workers are this Python, unless PYSPARK_PYTHON or spark-submit says otherwise.

    To be called before the session starts. Spark's default is the ``python3`` on
    PATH, which may lack kafkalog.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # not below spark-submit
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
