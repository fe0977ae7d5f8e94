"""What tests of commands and of logging share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fleet_world import kept_logging

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """The process's set-up of logging, back after every test: many run commands that change it."""
    with kept_logging():
        yield
