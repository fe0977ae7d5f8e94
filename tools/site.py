"""What MkDocs does not do by itself for the site of the documents (mkdocs.yml names this file).

Pages link to files outside docs/, as ARCHITECTURE.md and what is in deploy/: these get a place in
the site, too, below project/. The navigation follows docs/README.md, which has every page.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = "docs/"
PROJECT = "project/"
_LINK = re.compile(r"(\]\()([^)\s#]+)")
_SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
_FOREIGN = re.compile(r"""<(?:link|script|img|iframe)[^>]+(?:src|href)=["']?(?:https?:)?//""")
_INDEX = "README.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Each section of the index is one of the navigation; an index that it has is one below."""
    text = (ROOT / DOCS / _INDEX).read_text(encoding="utf-8")
    nav: list[object] = [_INDEX]
    for heading, section in _SECTION.findall(text):
        pages: list[object] = []
        for place in _places(DOCS + _INDEX, section):
            folder, _, name = place.rpartition("/")
            index = _source(place)
            inner = (ROOT / index).read_text(encoding="utf-8") if name == _INDEX else ""
            below = [each for each in _places(index, inner) if each.startswith(folder)]
            pages.append({folder.title(): [place, *below]} if below else place)
        nav.append({heading: pages})
    config.nav = nav
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add what pages outside docs/ link to, and what these link to."""
    left = [DOCS + file.src_uri for file in files.documentation_pages()]
    while left:
        page = left.pop()
        for _, link in _LINK.findall((ROOT / page).read_text(encoding="utf-8")):
            path = _target(page, link)
            place = _place(path)
            if (ROOT / path).is_file() and not files.get_file_from_path(place):
                files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
                left += [path] if path.endswith(".md") else []
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Links lead to the places of files in the site."""
    place = page.file.src_uri
    path = _source(place)

    def moved(found: re.Match[str]) -> str:
        target = _target(path, found[2])
        if not (ROOT / target).is_file():
            return found[0]  # no link, or a broken one: MkDocs says so
        return found[1] + os.path.relpath(_place(target), os.path.dirname(place))

    return _LINK.sub(moved, markdown)


def on_post_page(output: str, *, page: Page, **_: object) -> str:
    """Refuse a page that needs the network when it is read."""
    if _FOREIGN.search(output):
        raise PluginError(f"{page.file.src_uri} loads something from another host")
    return output


def _target(page: str, link: str) -> str:
    """The path in the project that a link of a page leads to; of a folder, its index."""
    path = os.path.normpath(os.path.join(os.path.dirname(page), link))
    return f"{path}/{_INDEX}" if (ROOT / path).is_dir() else path


def _places(page: str, text: str) -> list[str]:
    """The pages that a page's text links to, in its order."""
    places = [_place(_target(page, link)) for _, link in _LINK.findall(text)]
    return [each for each in places if each.endswith(".md")]


def _source(place: str) -> str:
    """The file of a place in the site; the inverse of ``_place``."""
    return place.removeprefix(PROJECT) if place.startswith(PROJECT) else DOCS + place


def _place(path: str) -> str:
    """Where a file of the project is in the site."""
    return path.removeprefix(DOCS) if path.startswith(DOCS) else PROJECT + path
