"""The console's static files, by name, with the digest in their address.

An address contains a digest of the file, so caches may keep it indefinitely: a new version of the
file has another address. Files of other projects are in ``static/vendor``; its manifest has their
name, version, licence and SHA-256, which a test verifies. Runbooks are pages: an operator reads
them where the alert is, also without the internet.
"""

from __future__ import annotations

import functools
import hashlib
import json
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNBOOKS_PATH = "/console/runbooks"
ASSETS_PATH = "/console/assets"
_DIGEST_CHARACTERS = 16
_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


class Asset(NamedTuple):
    """One file."""

    name: str
    content: bytes
    content_type: str
    sha256: str

    @property
    def digest(self) -> str:
        """The part of the SHA-256 that is in the address."""
        return self.sha256[:_DIGEST_CHARACTERS]


class VendoredPackage(NamedTuple):
    """A package in the manifest; ``files``: names with their SHA-256."""

    name: str
    version: str
    licence: str
    source: str
    files: Mapping[str, str]


@functools.cache
def all_assets() -> Mapping[str, Asset]:
    """By name; read once, about 100 KiB."""
    static = resources.files("kafkalog.console") / "static"
    found = {}
    for directory in (static, static / "vendor"):
        for entry in directory.iterdir():
            content_type = _TYPES.get(entry.name.rpartition(".")[2])
            if content_type is None:  # the manifest, the directory of vendored files
                continue
            content = entry.read_bytes()
            sha256 = hashlib.sha256(content).hexdigest()
            found[entry.name] = Asset(entry.name, content, content_type, sha256)
    return found


@functools.cache
def runbooks() -> Mapping[str, str]:
    """Texts of the runbooks by name: ``docs/runbooks``, which the package contains."""
    folder = resources.files("kafkalog.console") / "runbooks"
    if not folder.is_dir():
        return {}
    found = (each for each in folder.iterdir() if each.name.endswith(".md"))
    return {each.name.removesuffix(".md"): each.read_text("utf-8") for each in found}


def vendored_packages() -> list[VendoredPackage]:
    """The manifest."""
    manifest = resources.files("kafkalog.console") / "static" / "vendor" / "manifest.json"
    return [VendoredPackage(**each) for each in json.loads(manifest.read_text())["packages"]]


def asset_address(name: str) -> str:
    """The address of a file. Raises KeyError for an unknown name."""
    return f"{ASSETS_PATH}/{all_assets()[name].digest}/{name}"
