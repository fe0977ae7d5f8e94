"""Numbers and moments as Java prints them. Pure, but for the zone of the machine."""

from __future__ import annotations

import datetime
import math
import re
from decimal import ROUND_HALF_UP, Decimal

_DATE_PARTS = re.compile(r"yyyy|MM|dd|HH|mm|ss|SSS|[A-Za-z]+")
_DIRECTIVES = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
DATE_PATTERN = "yyyy-MM-dd HH:mm:ss:SSS"


def fixed(value: float, digits: int) -> str:
    """``%.nf``: halves go up, in the digits that the number is written with."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return str(Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def quotient(dividend: float, divisor: float) -> float:
    """As Java divides doubles: by nothing is infinite, nothing by nothing no number."""
    if divisor:
        return dividend / divisor
    return math.nan if not dividend else math.copysign(math.inf, dividend)


def date_text(pattern: str, wall_ms: int) -> str:
    """A SimpleDateFormat of years to milliseconds, in the machine's zone.

    ValueError for letters that are none of ``yyyy MM dd HH mm ss SSS``.
    """
    moment = datetime.datetime.fromtimestamp(wall_ms // 1000).astimezone()

    def part(found: re.Match[str]) -> str:
        letters = found[0]
        if letters == "SSS":
            return f"{wall_ms % 1000:03d}"
        if letters not in _DIRECTIVES:
            raise ValueError(f"{letters} is none of yyyy, MM, dd, HH, mm, ss, SSS")
        return moment.strftime(_DIRECTIVES[letters])

    return _DATE_PARTS.sub(part, pattern)
