"""About: versions of this daemon, and the packages that its console ships."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, ClassVar

from kafkalog import __version__
from kafkalog.console.assets import asset_address, vendored_packages
from kafkalog.console.view import Fragment, View

if TYPE_CHECKING:
    from kafkalog.broker.operations import Operations

KAFKA = "4.1"
"""The Kafka release whose file formats these are."""
LICENCE = "Apache-2.0"


class VendoredView(Fragment):
    """A package of another project that the console ships.

    licence_address  where the text of its licence is
    files            names with their SHA-256
    """

    name: str
    version: str
    licence: str
    licence_address: str
    source: str
    files: dict[str, str]


class AboutView(View):
    """The page."""

    template: ClassVar[str] = "about.html"
    heading: ClassVar[str] = "About"

    version: str
    licence: str
    kafka: str
    python: str
    platform: str
    cluster_id: str
    node_id: int
    vendored: list[VendoredView]


def about_view(operations: Operations) -> AboutView:
    """Blocks the first time, to read the manifest and the files."""
    return AboutView.of(
        operations,
        now_ms=operations.now_ms(),
        version=__version__,
        licence=LICENCE,
        kafka=KAFKA,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=f"{platform.system()} {platform.machine()}",
        vendored=[
            VendoredView.of(
                each,
                licence_address=asset_address(
                    next(name for name in each.files if "LICENSE" in name)
                ),
            )
            for each in vendored_packages()
        ],
    )
