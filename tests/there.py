"""What a test takes out of an answer that may be None."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def there(value: T | None) -> T:
    """The value itself; a test fails where it is None."""
    assert value is not None
    return value
