"""Python of a page that makes a Spark with Iceberg, run as it stands but for what it downloads."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.operate.documents import blocks
from tests.oracle.kafka import Kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COORDINATES = re.compile(r'"(org\.[\w.:,-]+:[\w.:,-]+)"')
_DEFAULTS = """
spark.master local[2]
spark.ui.enabled false
spark.driver.memory 1g
spark.log.level ERROR
spark.sql.session.timeZone UTC
spark.sql.shuffle.partitions 2
"""


@contextmanager
def python_of_page(
    page: Path, root: Path, as_here: Callable[[str], str] = str
) -> Iterator[dict[str, Any]]:
    """The names that the page's blocks have defined: spark, catalog and duck among them.

    root     for Spark's settings and files
    as_here  what a block is in this test
    """
    with pytest.MonkeyPatch.context() as patch:
        conf = root / "conf"
        conf.mkdir()
        settings = f"spark.jars {Kafka().iceberg()}\nspark.sql.warehouse.dir {root}/spark\n"
        (conf / "spark-defaults.conf").write_text(_DEFAULTS + settings)
        patch.setenv("SPARK_CONF_DIR", str(conf))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        names: dict[str, Any] = {}
        try:
            for each in blocks(page):
                if each.language == "python":
                    # Maven has brought what the coordinates name.
                    exec(as_here(COORDINATES.sub('""', each.text)), names)
            yield names
        finally:
            for name, end in (("duck", "close"), ("catalog", "close"), ("spark", "stop")):
                if name in names:
                    getattr(names[name], end)()
