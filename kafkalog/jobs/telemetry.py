"""A generated day of keyed telemetry: the same records for the same numbers, on every machine.

Each device reports once a minute, as JSON keyed by its name; some are retired at the end of the day
by a tombstone. No chance and no clock: what looks random is arithmetic.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY_START_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z
MINUTES = 24 * 60
_MINUTE_MS = 60_000
_RETIRED_EACH = 10


class Report(NamedTuple):
    """One record; value None retires the device."""

    key: str
    value: str | None
    timestamp_ms: int


def a_day(devices: int) -> Iterator[Report]:
    """Every report of the day in the order of time."""
    for minute in range(MINUTES):
        for device in range(devices):
            yield _report(device, minute)
    for device in range(0, devices, _RETIRED_EACH):
        yield Report(_name(device), None, DAY_START_MS + MINUTES * _MINUTE_MS)


def reports_in_a_day(devices: int) -> int:
    """How many they are."""
    return devices * MINUTES + len(range(0, devices, _RETIRED_EACH))


def _report(device: int, minute: int) -> Report:
    noise = (device * 7_919 + minute * 104_729) % 1_000
    value = {
        "minute": minute,
        "temperature": 15 + (minute - 360) % MINUTES / 144 + noise / 500,
        "battery": 100 - (minute + device) % 100,
        "status": "ok" if noise > 7 else "alarm",
    }
    # Devices report at seconds of their own.
    moment_ms = DAY_START_MS + minute * _MINUTE_MS + device * _MINUTE_MS // 100_000
    return Report(_name(device), json.dumps(value), moment_ms)


def _name(device: int) -> str:
    return f"device-{device:05}"
