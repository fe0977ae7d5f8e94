"""View: what one page shows, as values; rendered as HTML by its template and as JSON as it is.

Facts stay facts (bytes, ms since 1970, offsets). Templates turn them into words, except for
sentences that readers of the JSON get too. Immutable; made on a thread that may block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict

from kafkalog.format.topic_names import is_internal
from kafkalog.log.retention.forecast import timestamp_or_none

if TYPE_CHECKING:
    from collections.abc import Collection


class Fragment(BaseModel):
    """A part of a view."""

    model_config = ConfigDict(extra="forbid", frozen=True, from_attributes=True)

    @classmethod
    def of(cls, *sources: object, **given: Any) -> Self:  # noqa: ANN401 - of any field
        """Fields as given, the others from the first source with that attribute; null without."""
        for name in cls.model_fields.keys() - given.keys():
            found = next((each for each in sources if hasattr(each, name)), None)
            given[name] = getattr(found, name, None)
        return cls(**given)


class View(Fragment):
    """A whole page; ``now_ms`` is the wall clock that its relative times refer to.

    heading  the title of the page without the product's name; may name fields in braces
    """

    template: ClassVar[str]
    heading: ClassVar[str]
    now_ms: int

    @property
    def title(self) -> str:
        """The heading with the values of its fields."""
        return self.heading.format(**dict(self))


def _known(value: int | None) -> int | None:
    """-1 stands for none in the values of the broker."""
    return None if value is None or value < 0 else value


Known = Annotated[int | None, BeforeValidator(_known)]
"""A number of the broker's that may be -1; null then."""
Timestamp = Annotated[int | None, BeforeValidator(timestamp_or_none)]
"""A moment of the broker's, which may be after the last timestamp; null then: never."""
EnumValue = Annotated[str, BeforeValidator(lambda member: getattr(member, "value", member))]
"""The value of an enumeration's member."""


def listed_topics(names: Collection[str], *, with_internal: bool) -> tuple[list[str], int]:
    """Those that a page of topics lists, in their order, and how many of Kafka's own it hides."""
    listed = [name for name in names if with_internal or not is_internal(name)]
    return listed, len(names) - len(listed)


class Page(NamedTuple):
    """One page of a list: entries [first, end)."""

    page: int
    pages: int
    first: int
    end: int


def page_of(total: int, size: int, number: int) -> Page:
    """Page ``number`` (from 1) of ``size`` entries, or the last one; an empty list has one page."""
    pages = max(1, -(-total // size))
    shown = min(number, pages)
    first = (shown - 1) * size
    return Page(shown, pages, first, min(first + size, total))
