"""Goal: whoever resets a group sees before what it does, and it does that.
Method: what people choose and click, in Chromium, on groups behind and with a member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.console.browser import Window

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.console.browser import BrowserKit
    from tests.integration.daemon import Daemon

pytestmark = pytest.mark.console


def committed(daemon: Daemon, group: str) -> list[int]:
    found = daemon.request("GET", f"/v1/groups/{group}/offsets").json["offsets"]
    return [each["offset"] for each in found]


@pytest.mark.parametrize("has_script", [True, False])
def test_a_reset_with_a_preview(
    browser: Browser, kit: BrowserKit, shown: Daemon, *, has_script: bool
) -> None:
    group = f"reset-{has_script}".lower()
    entries = [{"topic": "events", "partition": at, "offset": 12} for at in range(3)]
    put = shown.request("PUT", f"/v1/groups/{group}/offsets", {"offsets": entries})
    assert put.status == 204, put.body
    with Window(browser, shown, has_script=has_script) as window:
        page = window.page
        window.open("/console/groups")
        page.get_by_role("link", name=group).click()
        assert "54 records" in page.locator(".stats").inner_text()
        page.get_by_role("link", name="Reset offsets").click()
        page.get_by_label("To", exact=True).select_option("offset")
        page.get_by_label("Time, offset or number").fill("20")
        page.get_by_role("button", name="Preview").click()
        page.wait_for_url("**to=offset&value=20&topic=")
        assert "skip 24 offsets" in page.get_by_role("status").inner_text()
        after = page.locator("tbody tr td:nth-child(4)").all_inner_texts()
        assert after == ["20", "20", "20"]
        assert committed(shown, group) == [12, 12, 12]
        if has_script:
            assert window.violations(kit) == []
        page.get_by_role("button", name="Reset 3 partitions").click()
        page.wait_for_url(f"**/console/groups/{group}/offsets")
        assert committed(shown, group) == [20, 20, 20]
        assert "30 records" in page.locator(".stats").inner_text()
        page.locator("summary", has_text="Delete offsets").click()
        page.get_by_label(f"Type {group}").fill(group)
        page.get_by_role("button", name="Delete permanently").click()
        page.wait_for_url("**/console/groups")
        assert page.get_by_role("link", name=group).count() == 0
        assert window.complaints == []


def test_a_group_with_members_has_no_reset(window: Window) -> None:
    window.open("/console/groups/search-index/reset?to=latest")
    assert "The group has 1 member" in window.page.inner_text("main")
    assert window.page.get_by_role("button", name="Reset").count() == 0
