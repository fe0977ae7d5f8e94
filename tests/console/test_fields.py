"""Goal: who types into a field of the console is told beside it what is wrong.
Method: what people type and copy, in the fields of Chromium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.console.browser import Window

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
    """Nobody is led to the page of an error by a typing mistake."""
    window.open(f"{PARTITION}/{page}")
    before = window.page.url
    box = window.page.locator(f"#{field}")
    box.fill(text)
    box.press("Enter")
    assert box.evaluate("(each) => each.validationMessage") != ""
    assert window.page.url == before
    assert window.complaints == []


def test_a_time_of_a_page_can_be_pasted(window: Window) -> None:
    """What one page shows, another one takes."""
    window.open(f"{PARTITION}/offsets")
    shown = window.page.locator(".as-of time").inner_text()
    assert shown.endswith(" UTC")
    window.page.locator("#timestamp").fill(shown)
    window.page.get_by_role("button", name="Find").nth(1).click()
    window.page.wait_for_url("**timestamp=**")
    assert window.page.locator("h1").inner_text() == "Offsets of orders-0"
    assert window.complaints == []


def test_a_limit_of_a_what_if_is_a_number(window: Window) -> None:
    """As above."""
    window.open("/console/topics/orders/retention")
    box = window.page.locator("#retention-ms")
    box.fill("7d")
    box.press("Enter")
    assert box.evaluate("(each) => each.validationMessage") != ""
    box.fill("-1")
    box.press("Enter")
    window.page.wait_for_url("**retention.ms=-1**")
    assert window.complaints == []
