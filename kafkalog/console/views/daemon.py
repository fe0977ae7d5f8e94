"""Pages of the whole daemon: its log directories, its background tasks, its versions."""

from __future__ import annotations

import functools
import math
import platform
from typing import TYPE_CHECKING, ClassVar

from kafkalog import __version__
from kafkalog.console.assets import asset_address, runbooks, vendored_packages
from kafkalog.console.markdown import Block, blocks_of
from kafkalog.console.view import EnumValue, Fragment, Known, View

if TYPE_CHECKING:
    from kafkalog.broker.operations import Operations
    from kafkalog.broker.values import LogDirDescription
    from kafkalog.observe.history import TrafficHistory


LARGEST = 20
"""How many partitions of each log directory are listed."""


class PartitionSizeView(Fragment):
    """A partition of a log directory."""

    topic: str
    partition: int
    size_bytes: int
    is_future: bool
    offset_lag: int


class LogDirView(Fragment):
    """One log directory; bytes are null when its file system was not measured.

    full_reason             why it refuses appends; null: it does not
    low_reason              why it refuses the larger ones; null: it does not, or refuses all
    is_filling              whether its free bytes become fewer; null: not known, or not yet
    full_in_ms              at the pace of the last hour; null: it does not fill, or not known
    partitions, log_bytes   null when it is offline, because its contents are not known
    largest                 its ``LARGEST`` partitions by size
    """

    path: str
    offline_reason: str | None
    full_reason: str | None
    low_reason: str | None = None
    is_cordoned: bool
    total_bytes: Known
    usable_bytes: Known
    used_bytes: Known
    used_ratio: float | None
    is_filling: bool | None = None
    full_in_ms: int | None = None
    partitions: int | None
    log_bytes: int | None
    largest: list[PartitionSizeView]


class LogDirsView(View):
    """Every log directory."""

    template: ClassVar[str] = "log_dirs.html"
    heading: ClassVar[str] = "Log directories"

    log_dirs: list[LogDirView]


def log_dirs_view(operations: Operations) -> LogDirsView:
    """No disk; visits every partition."""
    return LogDirsView(
        now_ms=operations.now_ms(),
        log_dirs=[
            log_dir_view(each, operations.history()) for each in operations.log_dirs.describe()
        ],
    )


def log_dir_view(log_dir: LogDirDescription, history: TrafficHistory) -> LogDirView:
    """One log directory."""
    is_online = log_dir.offline_reason is None
    space = log_dir.space
    full_in_ms = history.full_in_ms(log_dir.path) if is_online else None
    is_filling = None if full_in_ms is None else math.isfinite(full_in_ms)
    largest = sorted(log_dir.partitions, key=lambda each: each.size_bytes, reverse=True)
    return LogDirView.of(
        log_dir,
        space,
        is_filling=is_filling,
        full_in_ms=int(full_in_ms) if full_in_ms is not None and is_filling else None,
        partitions=len(log_dir.partitions) if is_online else None,
        log_bytes=sum(each.size_bytes for each in log_dir.partitions) if is_online else None,
        largest=[PartitionSizeView.of(each, each.topic_partition) for each in largest[:LARGEST]],
    )


class TaskRow(Fragment):
    """The tasks of one name; null: never, or none."""

    name: str
    state: EnumValue
    period_ms: Known
    next_run_ms: Known
    last_run_ms: Known
    last_duration_ms: Known
    last_success_ms: Known
    last_failure_ms: Known
    last_error: str | None
    waiting: int
    running: int
    runs: int
    failures: int

    @property
    def is_failing(self) -> bool:
        """Whether the run that ended last failed."""
        if self.last_failure_ms is None:
            return False
        return self.last_success_ms is None or self.last_success_ms < self.last_failure_ms


class TasksView(View):
    """Every background task, by name."""

    template: ClassVar[str] = "tasks.html"
    heading: ClassVar[str] = "Tasks"

    tasks: list[TaskRow]


def tasks_view(operations: Operations) -> TasksView:
    """No disk."""
    return TasksView(now_ms=operations.now_ms(), tasks=task_rows(operations))


def task_rows(operations: Operations) -> list[TaskRow]:
    """By name."""
    return [TaskRow.model_validate(each) for each in operations.tasks()]


class RunbookView(View):
    """One runbook; ``text`` is Markdown."""

    template: ClassVar[str] = "runbook.html"

    name: str
    text: str

    @property
    def title(self) -> str:
        """Its own heading."""
        return self.text.partition("\n")[0].lstrip("# ")

    @property
    def blocks(self) -> list[Block]:
        """The text for the template."""
        return blocks_of(self.text)

    @property
    def others(self) -> frozenset[str]:
        """To which a link may lead."""
        return frozenset(runbooks())


def runbook_view(operations: Operations, name: str) -> RunbookView:
    """Blocks the first time. KeyError for an unknown name."""
    return RunbookView(now_ms=operations.now_ms(), name=name, text=runbooks()[name])


_INDEX = "README"
_SEVERITIES = ("critical", "warning", "info", "no alert")  # as the index says them


class RunbookRow(Fragment):
    """A runbook as the index has it. ``severity``: of its alert."""

    name: str
    title: str
    subject: str
    severity: str
    meaning: str


class RunbooksView(View):
    """Every runbook."""

    template: ClassVar[str] = "runbooks.html"
    heading: ClassVar[str] = "Runbooks"

    runbooks: list[RunbookRow]

    @property
    def by_severity(self) -> dict[str, list[RunbookRow]]:
        """The worst first."""
        groups = {
            severity: [each for each in self.runbooks if each.severity == severity]
            for severity in _SEVERITIES
        }
        return {severity: rows for severity, rows in groups.items() if rows}


def runbooks_view(operations: Operations) -> RunbooksView:
    """Blocks the first time."""
    return RunbooksView(now_ms=operations.now_ms(), runbooks=list(runbook_rows()))


@functools.cache
def runbook_rows() -> tuple[RunbookRow, ...]:
    """The table of the index as rows. Blocks the first time."""
    rows, subject = list[RunbookRow](), ""
    tables = (each for each in blocks_of(runbooks()[_INDEX]) if each.kind == "table")
    for cells in (row for table in tables for row in table.rows[1:]):
        texts = ["".join(span.text for span in cell) for cell in cells]
        subject = texts[0] or subject
        (link,) = cells[1]
        row = RunbookRow(
            name=link.target, title=link.text, subject=subject, severity=texts[2], meaning=texts[3]
        )
        rows.append(row)
    return tuple(rows)


# ---- versions, and the packages that the console ships


KAFKA = "4.1"
"""The Kafka release whose file formats these are."""
LICENCE = "Apache-2.0"


class VendoredView(Fragment):
    """A package of another project that the console ships.

    licence_address  where the text of its licence is
    files            names with their SHA-256
    """

    name: str
    version: str
    licence: str
    licence_address: str
    source: str
    files: dict[str, str]


class AboutView(View):
    """The page."""

    template: ClassVar[str] = "about.html"
    heading: ClassVar[str] = "About"

    version: str
    licence: str
    kafka: str
    python: str
    platform: str
    cluster_id: str
    node_id: int
    vendored: list[VendoredView]


def about_view(operations: Operations) -> AboutView:
    """Blocks the first time, to read the manifest and the files."""
    return AboutView.of(
        operations,
        now_ms=operations.now_ms(),
        version=__version__,
        licence=LICENCE,
        kafka=KAFKA,
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=f"{platform.system()} {platform.machine()}",
        vendored=[
            VendoredView.of(
                each,
                licence_address=asset_address(
                    next(name for name in each.files if "LICENSE" in name)
                ),
            )
            for each in vendored_packages()
        ],
    )
