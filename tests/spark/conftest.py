"""One Spark for the whole run: a JVM takes ten seconds to start and half a gigabyte.

Files here import pyspark and are left alone where it is not installed (`make spark-setup`).
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from tests.spark.session import running_spark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

collect_ignore_glob = [] if importlib.util.find_spec("pyspark") else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first query compiles and starts workers; on a busy machine that takes a minute."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.timeout(600))
        elif item.get_closest_marker("spark_kafka"):  # and a broker is filled
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores in this process's JVM. Fails, never skips, without Java 17."""
    with running_spark(tmp_path_factory.mktemp("spark")) as session:
        yield session
