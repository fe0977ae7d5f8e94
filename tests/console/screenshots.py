"""Make the pictures of docs/images anew: ``python -m tests.console.screenshots``.

With ``--all DIRECTORY`` each page is written there instead, whole, at every one of WIDTHS in both
colour schemes, for a look at all of them: ``<page>-<width>-<scheme>.png``, and pages.jpg with all
side by side. ``--only TEXT``: of the pages whose address contains the text.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.console.browser import SCHEMES, WIDTHS, Window, browser_kit, running_browser
from tests.console.pages import ANSWERED, page_addresses
from tests.console.shown_daemon import shown_daemon
from tests.console.simulated_daemon import simulated_daemon
from tests.integration.daemon import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.console.browser import Served

IMAGES = ROOT / "docs" / "images"
DATA = Path("/tmp/kafkalog")  # short, because pages show it
WIDTH = 1120
_SHARE = 0.22  # of a picture's width, on the sheet of all pages
_SHEET = """<!doctype html><meta charset="utf-8"><style>
body { font: 13px sans-serif } th { text-align: left; padding-top: 8px } td { vertical-align: top }
img { display: block; height: 210px; object-fit: cover; object-position: 0 0; border: 1px solid }
</style>"""


class Picture(NamedTuple):
    """A page, down to the end of what ``last`` selects; the first of ``unfolded`` is clicked."""

    name: str
    path: str
    last: str
    unfolded: str = ""


PICTURES = (
    Picture("console-partition", "/console/topics/orders/partitions/0", "main details"),
    Picture("console-compacted", "/console/topics/profiles/partitions/0", "main details"),
    Picture(
        "console-retention",
        "/console/topics/orders/retention?retention.ms=172800000&horizon_days=7",
        "main figure",
    ),
    Picture("console-compaction", "/console/compaction", "main details >> nth=-1"),
    Picture(
        "console-delete-records",
        "/console/topics/orders/partitions/0/delete-records?offset=3",
        "main button >> nth=-1",
    ),
    Picture(
        "console-search",
        "/console/topics/events/records?text=order.paid&count=8",
        ".records",
        ".value",
    ),
    Picture("console-reset", "/console/groups/billing/reset?to=earliest", "main button >> nth=-1"),
)


# Of an hour of traffic, which is simulated.
BUSY = (
    Picture("console-overview", "/console", "main .cards.two > .card"),
    Picture("console-topics", "/console/topics", "main table"),
)


def main() -> None:
    """See the module; FileExistsError when DATA is somebody's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="DIRECTORY", dest="directory")
    parser.add_argument("--only", default="", metavar="TEXT")
    arguments = parser.parse_args()
    DATA.mkdir()
    try:
        with shown_daemon(DATA) as daemon, running_browser(browser_kit()) as browser:
            if arguments.directory is None:
                _take_all(browser, daemon, PICTURES)
                with simulated_daemon() as busy:
                    _take_all(browser, busy, BUSY)
            else:
                _take_every_page(browser, daemon, arguments.directory, arguments.only)
                _lay_out(browser, arguments.directory)
    finally:
        shutil.rmtree(DATA)


def _take_every_page(browser: Browser, daemon: Served, directory: Path, only: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    paths = [path for path in page_addresses("orders", "profiles") + ANSWERED if only in path]
    busy_paths = [each.path for each in BUSY if only in each.path]
    with simulated_daemon() as busy:
        for prefix, served, addresses in (("", daemon, paths), ("busy-", busy, busy_paths)):
            for path in addresses:
                name = prefix + re.sub(r"\W+", "-", path.removeprefix("/")).strip("-")
                for width in WIDTHS:
                    for scheme in SCHEMES:
                        with Window(browser, served, scheme=scheme, width=width) as window:
                            window.open(path)
                            picture = directory / f"{name}-{width}-{scheme}.png"
                            window.page.screenshot(
                                path=picture, full_page=True, animations="disabled"
                            )


def _lay_out(browser: Browser, directory: Path) -> None:
    """pages.jpg: a row a page, the upper part of each of its pictures."""
    variants = [f"{width}-{scheme}" for width in WIDTHS for scheme in SCHEMES]
    names = sorted(
        each.name.removesuffix(f"-{variants[0]}.png")
        for each in directory.glob(f"*-{variants[0]}.png")
    )
    rows = []
    for name in names:
        cells = "".join(
            f'<td><img src="{name}-{each}.png" width="{_SHARE * int(each.partition("-")[0]):.0f}">'
            for each in variants
        )
        rows.append(f"<tr><th colspan={len(variants)}>{name}<tr>{cells}")
    sheet = directory / "pages.html"
    sheet.write_text(f"{_SHEET}<table>{''.join(rows)}</table>", encoding="utf-8")
    page = browser.new_page(viewport={"width": 1_560, "height": 900})
    page.goto(sheet.resolve().as_uri())
    page.screenshot(path=directory / "pages.jpg", full_page=True, type="jpeg", quality=50)
    page.close()


def _take_all(browser: Browser, daemon: Served, pictures: tuple[Picture, ...]) -> None:
    for picture in pictures:
        with Window(browser, daemon, width=WIDTH) as window:
            _take(window, picture)


def _take(window: Window, picture: Picture) -> None:
    window.open(picture.path)
    window.page.evaluate("document.fonts.ready")
    if picture.unfolded:
        window.page.locator(f"{picture.unfolded} summary").first.click()
    box = window.page.locator(picture.last).first.bounding_box()
    assert box is not None, f"{picture.path} has no {picture.last}"
    height = round(box["y"] + box["height"]) + 16
    window.page.set_viewport_size({"width": WIDTH, "height": height})
    IMAGES.mkdir(exist_ok=True)
    window.page.screenshot(
        path=IMAGES / f"{picture.name}.png",
        clip={"x": 0, "y": 0, "width": WIDTH, "height": height},
        animations="disabled",
    )
    assert window.complaints == [], window.complaints


if __name__ == "__main__":
    main()
