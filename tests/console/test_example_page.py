"""Goal: the page of examples/ works in a browser as its README says.
Method: served from another port than the daemon's, in Chromium; the text that it shows.
"""

from __future__ import annotations

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import ROOT, Daemon

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

pytestmark = pytest.mark.console


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing: the test reads the page."""


def test_it_produces_and_shows_what_comes(browser: Browser, tmp_path: Path) -> None:
    handler = functools.partial(_Silent, directory=str(ROOT / "examples"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as pages:
        thread = threading.Thread(target=pages.serve_forever)
        thread.start()
        origin = f"http://127.0.0.1:{pages.server_address[1]}"
        try:
            with Daemon(tmp_path, access_control_allow_origin=origin) as daemon:
                context = browser.new_context()
                page, wrong = context.new_page(), list[str]()
                page.on("pageerror", lambda error: wrong.append(str(error)))
                page.goto(f"{origin}/example.html?url=http://127.0.0.1:{daemon.port}")
                page.get_by_text("0/2 alice").wait_for()
                daemon.request(
                    "POST",
                    "/v1/topics/examples/records",
                    b'{"key": "carol", "value": {"drink": "juice", "cups": 4}}',
                    {"Content-Type": "application/x-ndjson"},
                )
                page.get_by_text("0/3 carol").wait_for()
                shown = page.locator("#records").inner_text().splitlines()
                context.close()
        finally:
            pages.shutdown()
            thread.join()
    assert wrong == []
    assert shown == [
        "appended: 200 synced",
        '0/0 alice: {"drink":"tea","cups":1}',
        '0/1 bob: {"drink":"coffee","cups":2}',
        '0/2 alice: {"drink":"water","cups":3}',
        '0/3 carol: {"drink":"juice","cups":4}',
    ]
