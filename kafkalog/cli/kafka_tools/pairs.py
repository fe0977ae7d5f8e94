"""Options of the form key=value that Kafka's tools repeat: ``--property parse.key=true``. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def key_values(texts: Iterable[str]) -> dict[str, str]:
    """The last one of a key counts; one without ``=`` has the empty value."""
    parts = (text.partition("=") for text in texts)
    return {key: value for key, _, value in parts}


def is_true(properties: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """``true`` in any case; anything else is false."""
    text = properties.get(name)
    return default if text is None else text.strip().lower() == "true"
