"""Goal: the overview shows what is new by itself, as long as somebody looks and lets it.
Method: a topic more, while the page is open in Chromium.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.console.browser import Window

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

    from tests.integration.daemon import Daemon

pytestmark = pytest.mark.console
_numbers = itertools.count()


def topics(window: Window) -> Locator:
    """The figure."""
    return window.page.locator("dl.stats a[href='/console/topics']")


def one_more(window: Window, daemon: Daemon) -> str:
    """A topic is created; what the figure will be."""
    count = int(topics(window).inner_text())
    daemon.create_topic(f"live-{next(_numbers)}", 1)
    return str(count + 1)


def test_what_is_new_comes_by_itself(window: Window, shown: Daemon) -> None:
    window.open("/console")
    window.page.get_by_text("live", exact=True).wait_for()
    heading = window.page.locator("h1").element_handle()
    window.page.get_by_text("Show the last hour as table").click()
    expected = one_more(window, shown)
    window.page.wait_for_function(
        "(expected) => document.querySelector('dl.stats a').textContent === expected", arg=expected
    )
    assert heading.evaluate("(each) => each.isConnected")
    assert window.page.locator("main details").first.get_attribute("open") is not None
    assert window.page.get_by_text("live", exact=True).is_visible()


def test_a_page_can_be_paused(window: Window, shown: Daemon) -> None:
    window.open("/console")
    window.page.get_by_text("live", exact=True).wait_for()
    window.page.get_by_role("button", name="Pause").click()
    window.page.get_by_text("paused", exact=True).wait_for()
    before = len(window.requested)
    expected = one_more(window, shown)
    assert topics(window).inner_text() != expected
    window.page.get_by_role("button", name="Go on").click()
    window.page.wait_for_function(
        "(expected) => document.querySelector('dl.stats a').textContent === expected", arg=expected
    )
    asked = [each.rpartition("/")[2] for each in window.requested[before:]]
    assert (asked.count("console"), asked.count("events")) == (1, 1)


def test_a_page_without_a_script_offers_nothing_that_needs_one(
    browser: Browser, shown: Daemon
) -> None:
    with Window(browser, shown, has_script=False) as window:
        window.open("/console")
        assert window.page.get_by_role("button").count() == 0
        assert not window.page.get_by_text("live", exact=True).is_visible()
        # A daemon of less than a minute has sentences where the curves will be.
        assert window.page.locator(".plot svg, .plot-later").count() == 4
