"""Kept: working memory of codecs, given from caller to caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Kept(Generic[T]):
    """Working memory that costs more to make than to use; each is with one caller at a time.

    No lock: to take from a list and to put back are atomic. As many are kept as callers ever ran
    side by side.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        # constant after construction
        self._make = make
        # any thread
        self._idle: list[T] = []

    def take(self) -> T:
        """One that nobody else has."""
        try:
            return self._idle.pop()
        except IndexError:
            return self._make()

    def put_back(self, kept: T) -> None:
        """It is good after an error too."""
        self._idle.append(kept)
