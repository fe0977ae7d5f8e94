"""Goal: who types into a field of the console is told beside it what is wrong; lists are sorted by
hand or by keys; the curve of the retention form is drawn.
Method: what people type, copy and click, in Chromium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.console.browser import Window
    from tests.integration.daemon import Daemon

pytestmark = pytest.mark.console
PARTITION = "/console/topics/orders/partitions/0"


@pytest.mark.parametrize("page", ["records", "offsets", "delete-records"])
@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("offset", "30,000"),
        ("offset", ""),
        ("timestamp", "yesterday"),
        ("timestamp", "2026-01-31 12:00"),
    ],
)
def test_what_cannot_be_asked_is_told_on_the_spot(
    window: Window, page: str, field: str, text: str
) -> None:
    window.open(f"{PARTITION}/{page}")
    before = window.page.url
    box = window.page.locator(f"#{field}")
    box.fill(text)
    box.press("Enter")
    assert box.evaluate("(each) => each.validationMessage") != ""
    assert window.page.url == before
    assert window.complaints == []


def test_a_time_of_a_page_can_be_pasted(window: Window) -> None:
    window.open(f"{PARTITION}/offsets")
    shown = window.page.locator(".as-of time").inner_text()
    assert shown.endswith(" UTC")
    window.page.locator("#timestamp").fill(shown)
    window.page.get_by_role("button", name="Find").nth(1).click()
    window.page.wait_for_url("**timestamp=**")
    assert window.page.locator("h1").inner_text() == "Offsets of orders-0"
    assert window.complaints == []


def test_a_limit_of_a_what_if_is_a_number_or_a_duration(window: Window) -> None:
    window.open("/console/topics/orders/retention")
    box = window.page.locator("#retention-ms")
    box.fill("seven days")
    box.press("Enter")
    assert box.evaluate("(each) => each.validationMessage") != ""
    box.fill("-1")
    box.press("Enter")
    window.page.wait_for_url("**retention.ms=-1**")
    assert window.complaints == []


def test_limits_are_tried_and_then_set(window: Window, shown: Daemon) -> None:
    shown.create_topic("limits", 1)
    page = window.page
    window.open("/console/topics/limits/retention")
    page.get_by_label("retention.ms").fill("2d")
    page.get_by_role("button", name="Simulate").click()
    page.get_by_text("Set these limits").click()
    told = page.locator("details.fold p", has_text="The next check").inner_text()
    assert told == "limits gets retention.ms=2d. The next check deletes nothing."
    page.get_by_label("Type limits").fill("limits")
    page.get_by_role("button", name="Set the limits").click()
    assert "limits has retention.ms=2d now." in page.get_by_role("status").first.inner_text()
    assert page.get_by_label("retention.ms").get_attribute("placeholder") == "2 d"
    assert window.complaints == []


def test_a_column_s_name_sorts(window: Window) -> None:
    """The largest topic is two steps away, and a search stays while one sorts."""
    page = window.page
    window.open("/console/topics?name_contains=o")
    page.get_by_role("link", name="Size", exact=True).click()
    page.wait_for_url("**sort=size")
    sizes = page.locator("tbody td data").evaluate_all("(all) => all.map((one) => +one.value)")
    assert len(sizes) >= 2
    assert sizes == sorted(sizes, reverse=True)
    header = page.get_by_role("columnheader", name="Size", exact=True)
    assert header.get_attribute("aria-sort") == "descending"
    assert page.locator("[aria-sort]").count() == 1
    assert page.locator("#search").input_value() == "o"
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**name_contains=o&sort=size")


def test_the_curve_is_drawn(window: Window) -> None:
    """The daemon draws it: it falls, and is there in the policy that forbids inline styles."""
    window.open("/console/topics/orders/retention")
    curve = window.page.locator(".plot .line")
    box = curve.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) > 100
    assert window.page.locator(".plot svg").get_attribute("aria-label") == (
        "Bytes of orders; Bytes of orders: last 0 B, most 7.9 MiB"
    )
