"""Parsing of Spark's options, which are texts under names of any case.

Owns which names exist, the suggestion for a name that does not, and the spelling of numbers, sizes,
durations and booleans. Pure; any thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kafkalog.errors import KafkalogError
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KAFKA_PREFIX = "kafka."

_SIZE = re.compile(r"(\d{1,18})\s*(?:([kmgt])?(?:i?b)?)", re.IGNORECASE)
_SIZE_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_DURATION = re.compile(r"(\d{1,18})\s*([a-z]*)", re.IGNORECASE)
_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class InvalidOption(KafkalogError):
    """An unknown, missing, contradictory or malformed option; the message names it."""

    kafka_error = "INVALID_REQUEST"


class OptionValues:
    """The options of one query."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        """``known``: names as the documentation spells them; ``kafka.*`` is always known.

        Raises InvalidOption for any other name.
        """
        self._values = {name.lower(): value for name, value in given.items()}
        names = {name.lower(): name for name in known}
        for name in self._values:
            if name not in names and not name.startswith(KAFKA_PREFIX):
                guess = did_you_mean(name, names.values())
                raise InvalidOption(
                    f"There is no option {name}{guess or '; see docs/reference/spark.md'}"
                )

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def of_kafka(self) -> list[str]:
        """The names of the given options for Kafka's client, sorted."""
        return sorted(name for name in self._values if name.startswith(KAFKA_PREFIX))

    def given(self, names: Iterable[str]) -> list[str]:
        """The names that have a value, in this order."""
        return [name for name in names if name in self]

    def text(self, name: str) -> str | None:
        """The value without surrounding blanks; None when it is not given."""
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def texts(self, name: str) -> tuple[str, ...]:
        """The values between commas, without empty ones."""
        parts = (part.strip() for part in (self.text(name) or "").split(","))
        return tuple(part for part in parts if part)

    def boolean(self, name: str, default: bool) -> bool:
        """True or false in any case. Raises InvalidOption."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise wrong(name, value, "true or false")
        return value.lower() == "true"

    def word(self, name: str, default: str, words: tuple[str, ...]) -> str:
        """One of the words, in any case. Raises InvalidOption."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in words:
            raise wrong(name, value, " or ".join(words))
        return value.lower()

    def integer(self, name: str, low: int, high: int = INT64_MAX) -> int | None:
        """A decimal number; None when it is not given. Raises InvalidOption."""
        value = self.text(name)
        if value is None:
            return None
        bounds = f"a whole number from {low} to {high}"
        if not re.fullmatch(r"[+-]?\d{1,20}", value, re.ASCII) or not low <= int(value) <= high:
            raise wrong(name, value, bounds)
        return int(value)

    def size_bytes(self, name: str, default: int, low: int, high: int) -> int:
        """Bytes, written as 128m, 8 MiB or 4096. Raises InvalidOption."""
        value = self.text(name)
        if value is None:
            return default
        match = _SIZE.fullmatch(value)
        size = int(match[1]) << _SIZE_UNITS[(match[2] or "").lower()] if match else -1
        if not low <= size <= high:
            raise wrong(name, value, f"a size from {low} to {high} bytes, as 128m or 4096")
        return size

    def duration_ms(self, name: str, default_ms: int) -> int:
        """Milliseconds, written as 15m, 30s or 500 (ms). Raises InvalidOption."""
        value = self.text(name)
        if value is None:
            return default_ms
        match = _DURATION.fullmatch(value)
        if match is None or match[2].lower() not in _MS:
            raise wrong(name, value, "a duration, as 15m, 30s or 500ms")
        return int(match[1]) * _MS[match[2].lower()]


def wrong(name: str, value: str, wanted: str) -> InvalidOption:
    """The error for a malformed value."""
    shown = value if len(value) <= 200 else value[:200] + "..."
    return InvalidOption(f"Option {name} is '{shown}', but it must be {wanted}")
