"""A real Chromium for tests: pages as people get them, and all that a browser complains of.

Owns what a missing browser means: the test is skipped, or fails with KAFKALOG_CONSOLE=required.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, ConsoleMessage, Page, Request


KIT = Path(__file__).resolve().parent / "kit" / "browser.sh"
SETUP_SECONDS = 600
WAIT_MS = 60_000
# Of this machine alone: a browser calls its maker at once, which is nobody's test.
_FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
_TELL_VIOLATIONS = """document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.effectiveDirective} forbids ${event.blockedURI}`));"""
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_JUDGE = """async (tags) => {
  const found = await axe.run(document, { runOnly: tags, resultTypes: ["violations"] });
  return found.violations.flatMap((rule) =>
    rule.nodes.map((node) => `${rule.id} at ${node.target.join(" ")}: ${node.failureSummary}`));
}"""

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
WIDTHS = (420, 1120, 1920)
"""In pixels: a phone, half a screen, a whole one."""


class BrowserKit(NamedTuple):
    chromium: str
    axe: str


def browser_kit() -> BrowserKit:
    """Both; sets them up."""
    done = subprocess.run(
        ["bash", str(KIT)], capture_output=True, text=True, check=False, timeout=SETUP_SECONDS
    )
    if done.returncode == 0:
        chromium, axe = done.stdout.split()
        return BrowserKit(chromium, Path(axe).read_text(encoding="utf-8"))
    reason = f"no Chromium or axe-core: {done.stderr[-1000:]}"
    if os.environ.get("KAFKALOG_CONSOLE") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def running_browser(kit: BrowserKit) -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # only where `make console-test` was run

    with sync_playwright() as playwright:
        # Root has no sandbox of Chromium's; what it shows is our own.
        browser = playwright.chromium.launch(
            executable_path=kit.chromium, args=_FLAGS, chromium_sandbox=os.geteuid() != 0
        )
        try:
            yield browser
        finally:
            browser.close()


class Served(Protocol):
    """A daemon that listens on this machine."""

    @property
    def port(self) -> int: ...


class Window:
    """A page of a profile of its own, and what was wrong with it so far.

    complaints  errors and warnings of the browser, scripts' exceptions, what the policy forbade,
                requests that failed or went anywhere but to the daemon
    requested   the addresses that were asked for
    """

    def __init__(
        self,
        browser: Browser,
        daemon: Served,
        *,
        scheme: Scheme = "light",
        width: int = 1280,
        has_script: bool = True,
    ) -> None:
        self.origin = f"http://127.0.0.1:{daemon.port}"
        self.complaints: list[str] = []
        self.requested: list[str] = []
        self._context = browser.new_context(
            base_url=self.origin,
            color_scheme=scheme,
            java_script_enabled=has_script,
            reduced_motion="reduce",
            viewport={"width": width, "height": 900},
        )
        self._context.set_default_timeout(WAIT_MS)
        self._context.add_init_script(_TELL_VIOLATIONS)
        self.page: Page = self._context.new_page()
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        self.page.on("request", self._note_request)
        self.page.on("requestfailed", self._note_failure)

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *exc: object) -> None:
        self._context.close()

    def open(self, path: str) -> None:
        """Until everything that the page names is loaded; it must be there."""
        answer = self.page.goto(path, wait_until="load")
        assert answer is not None
        assert answer.status == 200, answer.text()

    def violations(self, kit: BrowserKit) -> list[str]:
        """What axe-core finds against WCAG 2.2 AA and its own good practice."""
        self.page.evaluate(kit.axe)
        found: list[str] = self.page.evaluate(_JUDGE, _RULES)
        return found

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def _note_request(self, request: Request) -> None:
        self.requested.append(request.url)
        if not request.url.startswith((f"{self.origin}/", "data:")):
            self.complaints.append(f"asked elsewhere: {request.url}")

    def _note_failure(self, request: Request) -> None:
        is_late = request.resource_type == "eventsource" or request.url.endswith("/kafkalog.svg")
        if is_late and request.failure == "net::ERR_ABORTED":
            return  # who left the page ended the stream, or the icon: no load event waits for it
        self.complaints.append(f"failed: {request.url}: {request.failure}")
