"""One browser and one daemon with data for all tests here; a test may add topics of its own."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from tests.console.browser import BrowserKit, Window, browser_kit, running_browser
from tests.console.shown_daemon import shown_daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.integration.daemon import Daemon

collect_ignore_glob = [] if importlib.util.find_spec("playwright") else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Chromium may have to be installed by the first."""
    for item in items:
        if item.get_closest_marker("console"):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def kit() -> BrowserKit:
    return browser_kit()


@pytest.fixture(scope="session")
def browser(kit: BrowserKit) -> Iterator[Browser]:
    with running_browser(kit) as browser:
        yield browser


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with shown_daemon(tmp_path_factory.mktemp("shown")) as daemon:
        yield daemon


@pytest.fixture
def window(browser: Browser, shown: Daemon) -> Iterator[Window]:
    """A window of usual size, in which nothing may be wrong at the end."""
    with Window(browser, shown) as window:
        yield window
        assert window.complaints == []
