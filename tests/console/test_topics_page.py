"""Goal: the list of topics is found, searched and sorted by hand or by keys.
Method: links and headers of its table in Chromium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.console.browser import Window

pytestmark = pytest.mark.console


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
