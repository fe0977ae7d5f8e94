"""Durations and sizes as people write them: 7d, 1.5h, 250ms, 1GiB, 64KiB. Pure.

Sizes have powers of 1024 only. GB and its like are refused, because half of the world's programs
read 1000 in them and the other half 1024.
"""

from __future__ import annotations

import re

from kafkalog.format.integers import INT32_MAX, INT64_MAX

DURATIONS = "7d, 12h, 45m, 30s or 250ms"
SIZES = "1GiB, 64MiB or 16KiB"

NO_LIMIT = str(INT64_MAX)
NO_LIMITS = frozenset((NO_LIMIT, str(INT32_MAX), "1.7976931348623157E308"))
"""The largest values of Kafka's long, int and double configs: no limit, or never. An int beside
other numbers, such as an offset, may be just this number."""

_MS = {
    "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
    "w": 604_800_000,
}  # fmt: skip
_BYTES = {"b": 1} | {
    f"{letter}{ending}": 1 << 10 * power
    for power, letter in enumerate("kmgt", 1)
    for ending in ("i", "ib")
}
_QUANTITY = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,9}))? ?([A-Za-z]+)")
# In what a configuration key counts, as units of the words above.
_COUNTED_IN = {
    "ms": (_MS, 1), "minutes": (_MS, 60_000), "hours": (_MS, 3_600_000),
    "bytes": (_BYTES, 1), "bytes/s": (_BYTES, 1),
}  # fmt: skip


def duration_ms(text: str) -> int | None:
    """Milliseconds; None for a text without a unit and for any that is no duration."""
    return _amount(text, _MS, 1)


def size_bytes(text: str) -> int | None:
    """Bytes; None for a text without a unit and for any that is no size."""
    return _amount(text, _BYTES, 1)


def plain_number(text: str, unit: str) -> str:
    """A duration or size as the number in ``unit`` (ms, hours, bytes); any other text as it is."""
    units, scale = _COUNTED_IN.get(unit, ({}, 1))
    amount = _amount(text.strip().removesuffix("/s"), units, scale)
    return text if amount is None else str(amount)


def example_of(unit: str) -> str:
    """How a quantity of this unit may be written; "" where only a number is."""
    if unit not in _COUNTED_IN:
        return ""
    return DURATIONS if _COUNTED_IN[unit][0] is _MS else SIZES


def _amount(text: str, units: dict[str, int], scale: int) -> int | None:
    """None for what is no whole number of the scale."""
    found = _QUANTITY.fullmatch(text)
    if found is None or found[3].lower() not in units or (units is _MS and not found[3].islower()):
        return None
    whole, fraction = found[1], found[2] or ""
    amount, rest = divmod(
        int(whole + fraction) * units[found[3].lower()], scale * 10 ** len(fraction)
    )
    return None if rest else amount
