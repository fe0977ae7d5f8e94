"""Goal: who has no mouse goes anywhere by a key or two, and is not disturbed while typing.
Method: keys in Chromium.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.console.browser import Window

pytestmark = pytest.mark.console


@pytest.mark.parametrize(
    ("letter", "path"),
    [
        ("o", "/console"),
        ("t", "/console/topics"),
        ("c", "/console/compaction"),
        ("b", "/console/runbooks"),
    ],
)
def test_g_and_a_letter_lead_to_a_page(window: Window, letter: str, path: str) -> None:
    window.open("/console/tasks")
    window.page.keyboard.press("g")
    window.page.keyboard.press(letter)
    window.page.wait_for_url(f"**{path}")


def test_a_slash_goes_to_the_search(window: Window) -> None:
    window.open("/console/topics")
    window.page.keyboard.press("/")
    window.page.keyboard.type("gt?/")
    assert window.page.locator("#search").input_value() == "gt?/"
    assert window.page.url.endswith("/console/topics")


def test_a_question_mark_lists_the_keys(window: Window) -> None:
    window.open("/console")
    keys = window.page.get_by_role("dialog", name="Keys")
    assert not keys.is_visible()
    window.page.keyboard.press("?")
    keys.wait_for(state="visible")
    window.page.keyboard.press("Escape")
    keys.wait_for(state="hidden")


def test_the_page_that_is_open_is_marked(window: Window) -> None:
    for path, name in (("/console", "Overview"), ("/console/topics/orders/partitions", "Topics")):
        window.open(path)
        current = window.page.locator("header [aria-current]")
        assert current.all_inner_texts() == [name]
