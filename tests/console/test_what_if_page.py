"""Goal: what the retention form says is what the next pass does.
Method: the form, the topic's configuration, the button that runs a pass, in a browser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.console.shown_daemon import SEGMENT_BYTES, fill
from tests.console.test_partition_page import letters, page_of, segments

if TYPE_CHECKING:
    from tests.console.browser import Window
    from tests.integration.daemon import Daemon

pytestmark = pytest.mark.console
TWO_AND_A_HALF_DAYS_MS = 216_000_000


def test_a_what_if_is_the_next_pass(window: Window, shown: Daemon) -> None:
    """Nobody is told another future than the one that comes."""
    topic, page = "asked", window.page
    shown.create_topic(topic, 1, segment_bytes=SEGMENT_BYTES, file_delete_delay_ms="3600000")
    fill(shown, topic, [6, 5, 4, 1, 1, 0])
    window.open(f"/console/topics/{topic}/retention")
    page.get_by_label("retention.ms").fill(str(TWO_AND_A_HALF_DAYS_MS))
    page.get_by_label("Days from now").fill("1")
    page.get_by_role("button", name="Simulate").click()
    page.wait_for_url("**retention.ms=*")
    table = page.locator("table").filter(has_text="Segments of partition 0 that would be deleted")
    named = table.locator("tbody th").all_inner_texts()
    assert named == ["0", "1", "2"]
    told = page.locator(".banner[role=status] data")
    going_bytes, left_bytes = (int(told.nth(at).get_attribute("value") or "") for at in (0, 1))
    assert len([each for each in segments(shown, topic) if each["state"] == "deleting"]) == 0

    (cluster,) = shown.request("GET", "/v3/clusters").json["data"]
    config = f"/v3/clusters/{cluster['cluster_id']}/topics/{topic}/configs/retention.ms"
    limit = {"value": str(TWO_AND_A_HALF_DAYS_MS)}
    assert shown.request("PUT", config, limit).status == 204
    window.open(page_of(topic))
    assert letters(window) == "XXXKKA"
    page.get_by_role("button", name="Delete 3 deletable segments").click()
    page.wait_for_url(f"**{page_of(topic)}")
    page.locator(".seg-deleting").first.wait_for()
    assert letters(window) == "WWWKKA"
    gone = [each for each in segments(shown, topic) if each["state"] == "deleting"]
    kept = [each for each in segments(shown, topic) if each["state"] != "deleting"]
    assert [str(each["base_offset"]) for each in gone] == named
    assert sum(each["size_bytes"] for each in gone) == going_bytes
    assert sum(each["size_bytes"] for each in kept) == left_bytes


def test_the_curve_is_drawn(window: Window) -> None:
    """The picture of the bytes is there, in the policy that forbids inline styles."""
    window.open("/console/topics/orders/retention")
    canvas = window.page.locator(".chart canvas")
    canvas.wait_for()
    box = canvas.bounding_box()
    assert box is not None
    assert min(box["width"], box["height"]) > 100
    inked = canvas.evaluate(
        """(each) => each.getContext("2d").getImageData(0, 0, each.width, each.height).data
          .filter((value, at) => at % 4 === 3 && value > 0).length"""
    )
    assert inked > 500
