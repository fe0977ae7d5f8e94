"""Bodies of /debug/ as the API's description has them."""

from __future__ import annotations

from typing import Literal

from kafkalog.server.answers import Body


class LoopTask(Body):
    """One coroutine that the event loop runs: where it waits, outermost call first."""

    name: str
    coroutine: str
    waits_at: list[str]


class ThreadAnswer(Body):
    """One thread; ``native_id`` is what the system's tools call it."""

    name: str
    native_id: int | None
    is_daemon: bool


class InsideTasks(Body):
    """What runs in the process now; ``/v1/tasks`` has what the scheduler runs in its threads."""

    loop: list[LoopTask]
    threads: list[ThreadAnswer]


class GivenConfig(Body):
    """One key as it was resolved at the start; ``origin`` is the variable or file."""

    name: str
    value: str | None
    source: Literal["override", "environment", "file", "default"]
    origin: str


class InsideConfig(Body):
    """Every key, and what the start had to say about the others."""

    configs: list[GivenConfig]
    notices: list[str]


class LogLevels(Body):
    """``level`` is that of every logger without one of its own."""

    level: str
    loggers: dict[str, str]


class FamilySize(Body):
    """One metric family: its samples, and how many values each label has."""

    name: str
    samples: int
    labels: dict[str, int]


class MetricsCardinality(Body):
    """The largest family first."""

    samples: int
    families: list[FamilySize]
