"""Goal: whoever looks for a record finds it, reads it, takes it along and appends one; with keys,
with and without a script.
Method: what people type and click, in Chromium, on a topic of JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.console.browser import Window

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

    from tests.console.browser import BrowserKit
    from tests.integration.daemon import Daemon

pytestmark = pytest.mark.console
RECORDS = "/console/topics/events/records"


def test_a_topic_is_picked_by_its_name(window: Window) -> None:
    window.open("/console/records")
    page = window.page
    page.keyboard.press("/")
    page.keyboard.type("even")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="events", exact=True).click()
    page.wait_for_url(f"**{RECORDS}")
    assert (
        page.get_by_role("link", name="Records", exact=True).nth(1).get_attribute("aria-current")
        == "page"
    )


@pytest.mark.parametrize("has_script", [True, False])
def test_a_search(browser: Browser, shown: Daemon, *, has_script: bool) -> None:
    """What is found, newest first, with the text marked; the next page goes on."""
    with Window(browser, shown, has_script=has_script) as window:
        page = window.page
        window.open(f"{RECORDS}?count=20")
        page.get_by_label("Records that contain").fill("ORDER.PAID")
        page.get_by_role("button", name="Search").click()
        page.wait_for_url("**text=ORDER.PAID**")
        rows = page.locator(".records tbody tr")
        assert rows.count() == 20
        assert set(page.locator("mark").all_inner_texts()) == {"order.paid"}
        times = page.locator(".records time").evaluate_all(
            "(all) => all.map((one) => one.dateTime)"
        )
        assert times == sorted(times, reverse=True)
        page.get_by_role("link", name="Search on").click()
        page.wait_for_url("**cursor=**")
        assert rows.count() == 10
        assert "All of it is searched." in page.inner_text("[role=status]")
        assert page.get_by_role("link", name="Search on").count() == 0
        assert window.complaints == []


def test_a_value_unfolds(window: Window, kit: BrowserKit) -> None:
    """A tree whose branches fold, reached by the keyboard alone; axe has nothing against it."""
    page = window.page
    window.open(f"{RECORDS}?partition=1&count=1")
    value = page.locator(".value")
    assert not page.locator(".tree").is_visible()
    value.locator("summary").first.focus()
    page.keyboard.press("Enter")
    tree = page.locator(".tree")
    tree.wait_for(state="visible")
    assert '"type": "order.paid"' in tree.inner_text()
    level = tree.get_by_text('"level"')
    assert not level.is_visible()
    tree.locator("summary").filter(has_text="tags").click()
    tree.locator("summary").filter(has_text="1 member").click()
    level.wait_for(state="visible")
    assert window.violations(kit) == []


def test_a_record_is_copied_and_downloaded(browser: Browser, shown: Daemon, tmp_path: Path) -> None:
    with Window(browser, shown) as window:
        page = window.page
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        window.open("/console/topics/events/partitions/1/records/3")
        page.get_by_role("button", name="Copy").first.click()
        page.get_by_role("button", name="Copied").wait_for()
        text = page.evaluate("navigator.clipboard.readText()")
        assert json.loads(text)["id"] == 10
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
        assert download.value.suggested_filename == "events-1-3"
        download.value.save_as(tmp_path / "value")
        assert json.loads((tmp_path / "value").read_bytes()) == json.loads(text)
        page.get_by_role("link", name="Next, 4").click()
        page.wait_for_url("**/records/4?show=auto")
        assert window.complaints == []


@pytest.mark.parametrize("has_script", [True, False])
def test_a_record_is_produced(browser: Browser, shown: Daemon, *, has_script: bool) -> None:
    """A refusal keeps what was typed; the answer leads to the record."""
    shown_topic = f"typed-{has_script}".lower()
    shown.create_topic(shown_topic, 2)
    with Window(browser, shown, has_script=has_script) as window:
        page = window.page
        window.open(f"/console/topics/{shown_topic}/produce")
        page.get_by_label("Value", exact=True).fill('{"broken": ')
        page.get_by_label("Format of the value").select_option("json")
        page.get_by_label("Key", exact=True).fill("k")
        page.get_by_label("Headers").fill("trace: 1\nsource: console")
        page.get_by_label("Partition").select_option("1")
        page.get_by_role("button", name="Append the record").click()
        assert "no JSON" in page.get_by_role("alert").inner_text()
        assert page.get_by_label("Key", exact=True).input_value() == "k"
        assert page.get_by_label("Headers").input_value() == "trace: 1\nsource: console"
        assert page.get_by_label("Partition").input_value() == "1"
        page.get_by_label("Value", exact=True).fill('{"whole": "<b>&amp;</b>"}')
        page.get_by_role("button", name="Append the record").click()
        assert "partition 1 at offset 0" in page.get_by_role("status").inner_text()
        page.get_by_role("link", name="See the record").click()
        page.wait_for_url("**/partitions/1/records/0")
        assert '"whole": "<b>&amp;</b>"' in page.locator(".tree").inner_text()
        assert "source" in page.locator(".headers").inner_text()
        expected = "error: Failed to load resource"  # Chromium names the refusal's status
        assert all(each.startswith(expected) for each in window.complaints)
