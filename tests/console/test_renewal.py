"""Goal: a page that renews itself shows what is new and leaves the reader his place.
Method: pages in Chromium whose clock is the test's: ten seconds go by when it says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.console.browser import Window
from tests.console.shown_daemon import SEGMENT_BYTES, fill
from tests.console.test_partition_page import blocks, focused, page_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.integration.daemon import Daemon

pytestmark = pytest.mark.console
PAST_A_RENEWAL_MS = 11_000


def renew(window: Window) -> None:
    """Let the page ask for itself; its answer is there on return."""
    with window.page.expect_response(lambda answer: "refresh=true" in answer.url):
        window.page.clock.run_for(PAST_A_RENEWAL_MS)


def test_renewal_keeps_what_the_reader_did(window: Window, shown: Daemon) -> None:
    """A page that renews itself takes neither the focus nor what was unfolded."""
    shown.create_topic("renewed", 1, segment_bytes=SEGMENT_BYTES)
    fill(shown, "renewed", [2, 1, 0])
    page = window.page
    page.clock.install()
    window.open(f"{page_of('renewed')}?refresh=true")
    page.locator("details summary").first.click()
    last = blocks(window).nth(1)
    blocks(window).first.focus()
    page.keyboard.press("ArrowRight")
    assert last.evaluate("(each) => each === document.activeElement")
    fill(shown, "renewed", [0])
    renew(window)
    page.locator("#segment-3").wait_for(state="visible")
    assert page.locator("details").first.get_attribute("open") is not None
    assert focused(window) == "#segment-1"
    assert blocks(window).count() == 4
    assert [each.get_attribute("tabindex") for each in blocks(window).all()].count("-1") == 3
    pause = page.get_by_role("link", name="Pause")
    pause.click()
    page.wait_for_url("**/partitions/0")


def test_a_renewal_that_fails_takes_nothing_away(browser: Browser, shown: Daemon) -> None:
    """A restart of the daemon costs a page that somebody watches nothing."""
    with Window(browser, shown) as window:
        page = window.page
        page.clock.install()
        window.open("/console/topics?refresh=true")
        stale = page.locator(".stale")
        assert not stale.is_visible()
        renewals = "**/console/topics?refresh=true"
        page.route(
            renewals, lambda route: route.fulfill(status=503, body="<main id=content>503</main>")
        )
        renew(window)
        stale.wait_for(state="visible")
        assert page.inner_text("h1") == "Topics"
        page.unroute(renewals)
        renew(window)
        stale.wait_for(state="hidden")
        page.route(renewals, lambda route: route.abort())
        with page.expect_event("requestfailed"):
            page.clock.run_for(PAST_A_RENEWAL_MS)
        stale.wait_for(state="visible")
        page.unroute(renewals)
        renew(window)
        stale.wait_for(state="hidden")


def test_a_renewal_draws_the_curve_and_leaves_the_form(window: Window) -> None:
    """The curve moves on with the time; what was typed meanwhile stays."""
    page = window.page
    page.clock.install()
    window.open("/console/topics/orders/retention?refresh=true")
    drawn = page.locator(".plot svg").element_handle()
    page.get_by_label("retention.ms").fill("1234")
    page.get_by_label("retention.bytes").focus()
    before = page.locator(".plot svg").get_attribute("data-from")
    renew(window)
    page.wait_for_function(
        "(before) => document.querySelector('.plot svg').dataset.from !== before", arg=before
    )
    assert drawn.evaluate("(each) => each.isConnected")
    assert page.get_by_label("retention.ms").input_value() == "1234"
