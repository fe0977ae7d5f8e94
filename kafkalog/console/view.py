"""View: what one page shows, as values; rendered as HTML by its template and as JSON as it is.

Facts stay facts (bytes, ms since 1970, offsets): words for people are the templates' work, but for
sentences that both readers get. Immutable; made on a thread that may block.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Fragment(BaseModel):
    """A part of a view."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class View(Fragment):
    """A whole page; ``now_ms`` is the wall clock that its relative times are about."""

    template: ClassVar[str]
    now_ms: int

    @property
    def title(self) -> str:
        """Of the page, without the product's name."""
        raise AssertionError("every page has a title")


def page_count(total: int, size: int) -> int:
    """Pages of ``size`` entries; an empty list has one."""
    return max(1, -(-total // size))
