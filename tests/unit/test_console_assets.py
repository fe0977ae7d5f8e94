"""Goal: the console's files are what they say they are, and its colours can be read.
Method: digests computed anew, the style sheet's variables by the formula of WCAG 2.2.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import kafkalog.console
from kafkalog.console.assets import all_assets, asset_address, vendored_packages
from kafkalog.console.segment_states import SegmentState

ROOT = Path(kafkalog.console.__file__).parent
VENDOR = ROOT / "static" / "vendor"
STYLE = (ROOT / "static" / "console.css").read_text()
SCHEMES = [
    dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", text))
    for text in STYLE.split("@media (prefers-color-scheme: dark)", 1)
]
LIGHT, DARK = SCHEMES[0], SCHEMES[0] | SCHEMES[1]


def luminance(colour: str) -> float:
    """Relative, of sRGB."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """From 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_vendored_files_are_those_of_the_manifest() -> None:
    """Nobody changes a file of another project unseen, or adds one without its licence."""
    named = dict[str, str]()
    for package in vendored_packages():
        assert package.version
        assert package.licence
        assert package.source.startswith("https://")
        assert any("LICENSE" in name for name in package.files)
        named.update(package.files)
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.name != "manifest.json"
    }
    assert found == named


def test_an_address_holds_the_digest() -> None:
    """What is kept for ever is never stale."""
    for name, asset in all_assets().items():
        digest = hashlib.sha256(asset.content).hexdigest()[:16]
        assert asset_address(name) == f"/console/assets/{digest}/{name}"


def test_every_file_a_template_names_is_there() -> None:
    """No page asks for a file that there is not."""
    texts = [path.read_text() for path in sorted((ROOT / "templates").iterdir())]
    wanted = {name for text in texts for name in re.findall(r"asset\('([^']+)'\)", text)}
    assert {"console.css", "console.js", "htmx.min.js", "uPlot.iife.min.js"} <= wanted
    assert wanted <= all_assets().keys()


def test_no_template_holds_a_script_or_a_style() -> None:
    """The policy that pages are sent with can be strict."""
    for path in sorted((ROOT / "templates").iterdir()):
        text = path.read_text()
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text), path.name
        assert not re.search(r"<script(?![^>]*\ssrc=)", text), path.name
        assert "|safe" not in text.replace(" ", ""), path.name
        assert not re.search(r'(?:src|href)="https?:', text), path.name


@pytest.mark.parametrize("state", list(SegmentState))
def test_letters_can_be_read_on_their_state(state: SegmentState) -> None:
    """WCAG 2.2 AA, 1.4.3."""
    for scheme in (LIGHT, DARK):
        assert contrast(scheme["on-seg"], scheme[f"seg-{state.value}"]) >= 4.5


@pytest.mark.parametrize("name", ["text", "quiet", "link", "well", "trouble"])
def test_text_can_be_read(name: str) -> None:
    """WCAG 2.2 AA, 1.4.3."""
    for scheme in (LIGHT, DARK):
        for ground in ("ground", "raised"):
            assert contrast(scheme[name], scheme[ground]) >= 4.5
