"""Crash tests load thousands of damaged logs: what the loader says of each is dropped.

They compute, so that how long they take is the machine's: the limit is only there for what hangs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import structlog

if TYPE_CHECKING:
    from collections.abc import Iterator


LONGEST_TEST_SECONDS = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """More time than the suite's default for the tests of this folder that name none."""
    for item in items:
        is_here = Path(__file__).parent in item.path.parents
        if is_here and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONGEST_TEST_SECONDS))


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """No log lines in this folder."""
    configuration = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.configure(**configuration)
