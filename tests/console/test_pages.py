"""Goal: every page of the console is whole in a real browser, for everybody who may look at it.
Method: Debian's Chromium on a daemon with data; what the browser and axe-core complain of, in both
colour schemes, on a narrow screen and without a script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.console.browser import SCHEMES, Window
from tests.console.pages import ANSWERED, page_addresses

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.console.browser import BrowserKit, Scheme
    from tests.integration.daemon import Daemon

pytestmark = pytest.mark.console
PAGES = page_addresses("orders", "profiles") + ANSWERED
PHONE_PIXELS = 320
_TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  const isScrolled = (each) => each.closest(".scroll, .skip") !== null;
  return [...document.body.querySelectorAll("*")]
    .filter((each) => !isScrolled(each) && each.getBoundingClientRect().right > width + 1)
    .map((each) => `${each.tagName} ${each.className}`);
}"""


def test_the_list_of_pages_is_whole() -> None:
    assert {
        "/console",
        "/console/topics",
        "/console/topics/orders/partitions",
        "/console/topics/profiles/partitions/0",
        "/console/topics/orders/retention",
        "/console/log-dirs",
        "/console/tasks",
    } <= set(PAGES)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_fault(
    browser: Browser, kit: BrowserKit, shown: Daemon, path: str, scheme: Scheme
) -> None:
    """WCAG 2.2 AA as far as a program can judge it; nothing foreign, no error."""
    with Window(browser, shown, scheme=scheme) as window:
        window.open(path)
        assert window.violations(kit) == []
        assert window.complaints == []
        assert any("/console/assets/" in each for each in window.requested)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_a_narrow_screen(browser: Browser, shown: Daemon, path: str) -> None:
    """WCAG 1.4.10: at 320 pixels only tables and pictures scroll sideways, inside themselves."""
    with Window(browser, shown, width=PHONE_PIXELS) as window:
        window.open(path)
        assert window.page.evaluate(_TOO_WIDE) == []
        assert window.complaints == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_needs_no_script(browser: Browser, shown: Daemon, path: str) -> None:
    with Window(browser, shown, has_script=False) as window:
        window.open(path)
        heading = window.page.inner_text("h1")
        captions = window.page.locator("caption").count()
    with Window(browser, shown) as window:
        window.open(path)
        assert window.page.inner_text("h1") == heading
        assert window.page.locator("caption").count() == captions


def test_the_judges_see(browser: Browser, kit: BrowserKit, shown: Daemon) -> None:
    """No complaint means that there is nothing to complain of."""
    with Window(browser, shown) as window:
        window.open("/console")
        with window.page.expect_console_message(lambda each: "policy: img-src" in each.text):
            window.page.evaluate(
                """() => {
              const script = document.createElement("script");
              script.textContent = "document.title = 'run'";
              const picture = document.createElement("img");
              picture.src = "https://other.example/picture.png";
              document.querySelector("main").append(script, picture);
            }"""
            )
        assert any("script-src" in each for each in window.complaints)
        assert any("img-src" in each for each in window.complaints)
        assert window.page.title() != "run"
        assert any(each.startswith("image-alt at ") for each in window.violations(kit))
