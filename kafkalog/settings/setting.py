"""Setting: one declared key, how its text is parsed and which values are valid.

Owns Kafka's parsing rules (``ConfigDef.parseType``, 4.1): text is trimmed, booleans are ``true`` or
``false`` in any case, lists are split at commas and trimmed, numbers are decimal and bounded by
their Java type. Pure; any thread. Differs from Kafka: ``NaN`` is refused everywhere (Kafka's range
checks accept it), and a number that counts time or bytes may have its own unit (``7d``, ``1GiB``).
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.format.quantities import example_of, plain_number

if TYPE_CHECKING:
    from kafkalog.errors import KafkalogError

E = TypeVar("E", bound="KafkalogError")
Value = int | float | bool | str | tuple[str, ...] | None

DOUBLE_MAX = 1.7976931348623157e308

_DECIMAL = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"[+-]?(Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
_COMMA = re.compile(r"\s*,\s*")


class Kind(enum.Enum):
    """The value's type, with Kafka's names."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"


class Scope(enum.Enum):
    """Which frozen configuration a key ends in."""

    BROKER = "broker"  # broker/broker_config.py: BrokerConfig
    SERVER = "server"  # server_config.py: ServerConfig
    TOPIC = "topic"  # log/log_config.py: LogConfig
    TOPIC_DEFAULT = "topic default"  # a broker key that gives a topic key its default


@dataclass(frozen=True, slots=True)
class Valid:
    """The valid values: inclusive bounds of a number, or the words of a string or list."""

    low: int | float | None = None
    high: int | float | None = None
    words: tuple[str, ...] = ()
    extra: tuple[int, ...] = ()  # single numbers outside the bounds
    advice: str = ""  # what else the user of a refused value can do
    text: str = ""  # in words, where another check narrows what bounds cannot say

    def accepts(self, value: Value) -> bool:
        """Whether value keeps the rule; None always does."""
        if isinstance(value, tuple):
            return not self.words or all(word in self.words for word in value)
        if isinstance(value, str):
            return not self.words or value in self.words
        if value is None or isinstance(value, bool) or value in self.extra:
            return True
        above = self.low is None or value >= self.low
        return above and (self.high is None or value <= self.high)

    def describe(self, kind: Kind) -> str:
        """In words, for error messages and the reference page."""
        if self.text:
            return self.text
        if kind is Kind.BOOLEAN:
            return "true or false"
        if self.words:
            joined = ", ".join(self.words)
            return f"a list of: {joined}" if kind is Kind.LIST else f"one of: {joined}"
        if self.low is not None and self.high is not None:
            text = f"{self.low} to {self.high}"
        elif self.low is not None:
            text = f"at least {self.low}"
        else:
            return f"any {kind.value}"
        return text + "".join(f", or {number}" for number in self.extra)


ANY = Valid()


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker key that supplies a topic key's default; its value times scale is the topic's."""

    key: str
    scale: int = 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One key. ``field`` is the Python name in its configuration, "" when nothing reads it yet."""

    key: str
    kind: Kind
    default: Value
    unit: str
    valid: Valid
    scope: Scope
    field: str
    doc: str
    dynamic: bool = False
    effective: bool = True
    own: bool = False  # kafkalog's, unknown to Kafka
    internal: bool = False  # accepted, not listed
    synonyms: tuple[Synonym, ...] = ()  # topic keys: broker keys, first one set wins

    @property
    def valid_text(self) -> str:
        """The valid values in words."""
        return self.valid.describe(self.kind)

    def parse(self, text: str) -> Value:
        """The value of text; ValueError when it is not of the kind or outside the valid range."""
        try:
            value = parse_value(self.kind, text)
        except ValueError:
            value = self._parse_with_unit(text)
        if not self.valid.accepts(value):
            raise ValueError("is not allowed")
        return value

    def _parse_with_unit(self, text: str) -> Value:
        try:
            return parse_value(self.kind, self.plain(text))
        except ValueError as error:
            example = example_of(self.unit)
            raise ValueError(f"{error}{f', or as {example}' if example else ''}") from error

    def plain(self, text: str) -> str:
        """A value with a unit as the number that Kafka takes; any other text as it is."""
        return plain_number(text, self.unit)

    def refusal(self, kind: type[E], text: str | None, reason: str) -> E:
        """The error of a value that ``parse`` refused, or that does not fit to others."""
        value = f"Invalid value {text} for configuration {self.key}"
        advice = f"; {self.valid.advice}" if self.valid.advice else ""
        message = f"{value}: {reason} (valid: {self.valid_text}{advice})"
        return kind(message, key=self.key, value=text, valid=self.valid_text)


def parse_value(kind: Kind, text: str) -> Value:
    """Text to a value of kind by Kafka's rules; ValueError says what was expected."""
    trimmed = text.strip()
    match kind:
        case Kind.BOOLEAN:
            lowered = trimmed.lower()
            if lowered not in ("true", "false"):
                raise ValueError("is no boolean")
            return lowered == "true"
        case Kind.INT:
            return _parse_integer(trimmed, INT32_MAX, "int")
        case Kind.LONG:
            return _parse_integer(trimmed, INT64_MAX, "long")
        case Kind.DOUBLE:
            return _parse_double(trimmed)
        case Kind.LIST:
            return tuple(_COMMA.split(trimmed)) if trimmed else ()
        case Kind.STRING:
            return trimmed


def format_value(value: Value) -> str | None:
    """As Kafka prints a configuration value; None stays None."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        mantissa, marker, exponent = repr(value).partition("e")
        fraction = mantissa if "." in mantissa else f"{mantissa}.0"
        return f"{fraction}E{int(exponent)}" if marker else fraction
    return str(value)


def _parse_integer(text: str, largest: int, name: str) -> int:
    if not _DECIMAL.fullmatch(text) or len(text) > 400:
        raise ValueError(f"must be a whole number ({name})")
    value = int(text)
    if not -largest - 1 <= value <= largest:
        raise ValueError(f"must be a whole number from {-largest - 1} to {largest} ({name})")
    return value


def _parse_double(text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise ValueError("must be a number (double)")
    value = float(text.rstrip("fFdD") if "nfinity" not in text else text)
    if math.isnan(value):
        raise ValueError("must be a number (double)")
    return value
