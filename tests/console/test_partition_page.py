"""Goal: the segment strip is the truth about the segments, and can be used by anybody.
Method: the drawn picture beside the API's segments; keys; without a script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.console.drawings import CHARACTER_WIDTH
from tests.console.browser import Window

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

    from tests.integration.daemon import Daemon

pytestmark = pytest.mark.console
LEAST_PIXELS = 6
LETTERS = {"orders": "XXKKKKKA", "clicks": "WWWKA", "profiles": "WWWCCCDDDUA"}


def segments(daemon: Daemon, topic: str) -> list[dict[str, Any]]:
    answer = daemon.request("GET", f"/v1/topics/{topic}/partitions/0/segments")
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = answer.json["segments"]
    return found


def page_of(topic: str) -> str:
    return f"/console/topics/{topic}/partitions/0"


def blocks(window: Window) -> Locator:
    """The rectangles, which are links."""
    return window.page.locator("[data-strip] a")


def focused(window: Window) -> str | None:
    """The address of the link that has the focus."""
    address: str | None = window.page.evaluate("document.activeElement.getAttribute('href')")
    return address


def letters(window: Window) -> str:
    return "".join(blocks(window).locator("text").all_text_contents())


@pytest.mark.parametrize("topic", list(LETTERS))
def test_the_strip_is_the_segments_api(window: Window, shown: Daemon, topic: str) -> None:
    """Each segment is drawn, in its place, with its letter; the table has the API's numbers."""
    window.open(page_of(topic))
    api = segments(shown, topic)
    drawn = blocks(window)
    assert letters(window) == LETTERS[topic]
    assert drawn.count() == len(api)
    boxes = [drawn.nth(at).locator(".seg").bounding_box() for at in range(len(api))]
    edge = None
    for box, segment, title in zip(
        boxes, api, drawn.locator("title").all_text_contents(), strict=True
    ):
        assert box is not None
        assert box["width"] >= LEAST_PIXELS
        assert edge is None or box["x"] == pytest.approx(edge, abs=2)
        edge = box["x"] + box["width"]
        assert f"offset {segment['base_offset']:,}" in title
    by_size = sorted(zip((box["width"] for box in boxes if box), api, strict=True), key=_width)
    sizes = [segment["size_bytes"] for _, segment in by_size]
    assert sizes == sorted(sizes)
    rows = window.page.locator("tr[id^=segment-]")
    assert rows.count() == len(api)
    for at, segment in enumerate(api):
        row = rows.nth(at)
        assert row.locator("th").text_content() == f"{segment['base_offset']:,}"
        assert row.locator("data").get_attribute("value") == str(segment["size_bytes"])


def _width(pair: tuple[float, dict[str, Any]]) -> tuple[int, int]:
    return round(pair[0]), pair[1]["size_bytes"]


def test_keys_go_through_the_strip(window: Window) -> None:
    """WCAG 2.1.1: one tab stop, arrows inside, Enter leads to the segment's row."""
    window.open(page_of("orders"))
    page, strip = window.page, blocks(window)
    assert [each.get_attribute("tabindex") for each in strip.all()].count("-1") == 7
    strip.first.focus()
    for key, at in (("ArrowLeft", 0), ("ArrowRight", 1), ("End", 7), ("ArrowRight", 7)):
        page.keyboard.press(key)
        assert focused(window) == f"#segment-{at}"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert not page.locator("#segment-1").is_visible()
    page.keyboard.press("Enter")
    page.locator("#segment-1:target").wait_for(state="visible")
    page.keyboard.press("/")  # there is no search here, and nothing breaks
    page.keyboard.press("Shift+Tab")


def test_a_block_leads_to_its_row_without_a_script(browser: Browser, shown: Daemon) -> None:
    with Window(browser, shown, has_script=False) as window:
        window.open(page_of("orders"))
        blocks(window).nth(2).click()
        window.page.locator("#segment-2").wait_for(state="visible")


def test_labels_of_the_axis_have_the_room_that_is_reckoned_for_them(window: Window) -> None:
    """Otherwise one covers another; on a narrow screen a list has them, as they would be tiny."""
    window.open(f"{page_of('orders')}/offsets?offset=2")
    labels = window.page.locator(".axis text")
    assert labels.count() > 5
    for width in (1_120, 1_600, 1_920):
        window.page.set_viewport_size({"width": width, "height": 900})
        shares = labels.evaluate_all(
            "(all) => all.map((one) => one.getComputedTextLength() / one.textContent.length)"
        )
        assert max(shares) <= CHARACTER_WIDTH, width
    window.page.set_viewport_size({"width": 420, "height": 900})
    assert not labels.first.is_visible()
    assert "asked 2" in window.page.locator(".narrow-marks").inner_text()


def test_the_search_has_a_key(window: Window) -> None:
    """``/`` goes to the search, and types a slash once one is there."""
    window.open("/console/topics")
    search = window.page.locator("#search")
    window.page.keyboard.press("/")
    assert search.evaluate("(each) => each === document.activeElement")
    window.page.keyboard.type("ord/")
    assert search.input_value() == "ord/"
    window.page.keyboard.press("Backspace")
    window.page.keyboard.press("Enter")
    window.page.wait_for_url("**name_contains=ord&sort=name")
    names = window.page.locator("tbody th a").all_inner_texts()
    assert names == ["orders"]
