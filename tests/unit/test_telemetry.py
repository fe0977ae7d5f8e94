"""Goal: the generated day is the same everywhere, and a step that disagrees is named.
Method: two makings of it beside its own count; steps with equal and other numbers.
"""

from __future__ import annotations

import json

from kafkalog.jobs.telemetry import DAY_START_MS, MINUTES, a_day, reports_in_a_day


def test_a_day_is_always_the_same() -> None:
    """Count, keys, times that rise, values that are JSON, tombstones at its end."""
    day = list(a_day(11))
    assert day == list(a_day(11))
    assert len(day) == reports_in_a_day(11) == 11 * MINUTES + 2
    assert len({each.key for each in day}) == 11
    times = [each.timestamp_ms for each in day]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (DAY_START_MS, DAY_START_MS + 86_400_000)
    retired = [each.key for each in day if each.value is None]
    assert retired == ["device-00000", "device-00010"]
    values = [json.loads(each.value) for each in day if each.value is not None]
    assert {each["status"] for each in values} == {"ok", "alarm"}
