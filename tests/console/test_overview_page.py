"""Goal: who opens the console sees how the daemon does and, when it needs somebody, what to do.
Method: a simulated hour of traffic in Chromium, with disks that have room and with full ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.console.browser import SCHEMES, WIDTHS, Window
from tests.console.simulated_daemon import simulated_daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    from tests.console.browser import BrowserKit, Scheme
    from tests.console.simulated_daemon import SimulatedDaemon

pytestmark = pytest.mark.console
SCREEN_PIXELS = 900
_CUT = """() => [...document.querySelectorAll("main .scroll")]
  .filter((each) => each.checkVisibility({contentVisibilityAuto: true}))
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.getAttribute("aria-label") ?? each.className)"""


@pytest.fixture(scope="module")
def busy() -> Iterator[SimulatedDaemon]:
    with simulated_daemon() as daemon:
        yield daemon


@pytest.fixture(scope="module")
def full() -> Iterator[SimulatedDaemon]:
    with simulated_daemon(is_full=True) as daemon:
        yield daemon


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("path", ["/console", "/console/topics", "/console/log-dirs"])
def test_a_page_is_whole_at_any_width(
    browser: Browser, kit: BrowserKit, busy: SimulatedDaemon, path: str, width: int, scheme: Scheme
) -> None:
    with Window(browser, busy, scheme=scheme, width=width) as window:
        window.open(path)
        assert window.violations(kit) == []
        assert window.complaints == []
        wide, high = window.page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
        )
        assert wide == width
        assert high <= 3 * SCREEN_PIXELS


def test_a_curve_says_its_values_under_the_pointer(browser: Browser, busy: SimulatedDaemon) -> None:
    with Window(browser, busy) as window:
        window.open("/console")
        curve = window.page.get_by_role("img", name="Bytes;")
        curve.hover()
        shown = window.page.locator(".readout").inner_text()
        assert "UTC: in " in shown
        assert shown.count("KiB/s") == 2
        window.page.locator("h1").hover()
        assert window.page.locator(".readout").count() == 0
        assert window.complaints == []


def test_a_full_disk_is_red_and_leads_to_what_to_do(
    browser: Browser, kit: BrowserKit, full: SimulatedDaemon
) -> None:
    with Window(browser, full) as window:
        window.open("/console")
        assert window.page.get_by_role("status").inner_text().startswith("Needs attention: ")
        assert window.violations(kit) == []
        window.page.get_by_role("link", name="What to do: /data/a is full").click()
        window.page.wait_for_url("**/console/runbooks/disk-full")
        assert window.page.inner_text("h1") == "Disk full"
        window.open("/console/log-dirs")
        alert = window.page.get_by_role("alert").first
        assert alert.inner_text().startswith("/data/a is full: ")
        red, green, blue = alert.evaluate(
            "(each) => getComputedStyle(each).backgroundColor.match(/[0-9]+/g).map(Number)"
        )
        assert red > max(green, blue)
        assert window.complaints == []


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/topics",
        "/console/records",
        "/console/retention",
        "/console/configs?all=true",
        "/console/topics/orders/partitions",
        "/console/topics/orders/partitions/0",
        "/console/tasks",
        "/console/about",
        "/console/log-dirs",
        "/console/runbooks",
    ],
)
@pytest.mark.parametrize("width", [420, 1120])
def test_every_column_is_shown(
    browser: Browser, busy: SimulatedDaemon, path: str, width: int
) -> None:
    """On a phone rows are blocks of named facts, so that nothing is beside the screen."""
    with Window(browser, busy, width=width) as window:
        window.open(path)
        cut: list[str] = window.page.evaluate(_CUT)
        assert cut == []
        assert window.complaints == []


def test_a_phone_has_the_pages_in_a_menu(browser: Browser, busy: SimulatedDaemon) -> None:
    with Window(browser, busy, width=min(WIDTHS), has_script=False) as window:
        window.open("/console")
        retention = window.page.get_by_role("link", name="Retention", exact=True)
        assert not retention.is_visible()
        window.page.get_by_role("button", name="Menu").click()
        retention.click()
        window.page.wait_for_url("**/console/retention")


def test_the_address_of_a_topic_leads_to_its_pages(browser: Browser, busy: SimulatedDaemon) -> None:
    with Window(browser, busy) as window:
        window.open("/console/topics/orders")
        window.page.wait_for_url("**/console/topics/orders/partitions")
        assert window.page.inner_text("h1") == "orders"


def test_an_error_leads_back(browser: Browser, busy: SimulatedDaemon) -> None:
    with Window(browser, busy) as window:
        window.page.goto("/console/topics/none/partitions")
        assert window.page.inner_text("h1") == "404: not shown"
        window.page.locator("main").get_by_role("link", name="overview").click()
        window.page.wait_for_url("**/console")
