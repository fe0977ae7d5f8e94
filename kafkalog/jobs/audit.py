"""Job ``audit``: check every batch, index, producer sequence and epoch of log directories.

The checks are those of ``kafkalog segments verify`` with its warnings
(``log.inspect.segment_check``, ``log.inspect.directory_check``). A task checks neighbouring
segments of one partition, up to about TARGET_BYTES. The merge joins the segments of each partition,
so that sequences and epochs are followed over the whole log. Files are only read.

A directory may be served meanwhile. A segment or directory with findings is checked again; a
finding that the second check does not have was a write in progress. A segment that is missing by
then was deleted or compacted away, and is reported as ``vanished``, an information. The segments of
a served compacted partition are checked in order, by one task: a swap in between then shows
as missing segments, never as an overlap. Files that its cleaner is writing are no findings.

Missing offsets are explained by compaction if the topic's configs or the cleaner's checkpoint say
so; otherwise they are a warning. The log start of a served log may be above its checkpoint. Its
epochs are then compared from the first entry of their own checkpoint on.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.env.clock import SystemClock
from kafkalog.format.disk.file_names import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    parse_segment_file,
    segment_file_name,
)
from kafkalog.format.integers import INT64_MAX
from kafkalog.jobs.tasks import Pack, packed, progress, result_of
from kafkalog.log.inspect.directory_check import (
    DirectoryListing,
    SmallFiles,
    check_small_files,
    join_reports,
    list_directory,
)
from kafkalog.log.inspect.findings import Finding, FindingCode, Severity
from kafkalog.log.inspect.segment_check import SegmentReport, check_segment
from kafkalog.spark.logs.object_store import filesystem_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.jobs.fleet import FleetPartition
    from kafkalog.jobs.tasks import Runner

TARGET_BYTES = 128 << 20
"""Bytes of log in one task: a larger partition is checked by several tasks."""

_TOTALS = ("partitions", "segments", "batches", "bytes", "errors", "warnings")
_CHANGE_SECONDS = 0.2  # in which a daemon usually renames the files of a swap
_CHECKS_MAX = 20  # of a possible write in progress: a daemon with a slow disk takes longer


@dataclass(frozen=True, slots=True)
class AuditTask:
    """Neighbouring segments of a partition; its first task checks the small files as well.

    names      of the segments' files, when they were planned
    last_base  of the partition's last segment then
    """

    partition: FleetPartition
    bases: tuple[int, ...]
    names: frozenset[str]
    last_base: int | None
    size_bytes: int
    is_first: bool

    @property
    def label(self) -> str:
        """See Task."""
        first = f" from {self.bases[0]} on" if self.bases else ""
        return f"{self.partition.label}{first}"


@dataclass(frozen=True, slots=True)
class AuditedSegments:
    """The results of a task; ``listing`` and ``small`` only of a partition's first task."""

    listing: DirectoryListing | None
    small: SmallFiles | None
    reports: tuple[SegmentReport, ...]
    others: tuple[Finding, ...] = ()  # for files without a report


class AuditRow(NamedTuple):
    """One finding. ``file`` is in ``directory``; ``position`` is the byte in it."""

    severity: str
    code: str
    topic: str
    partition: int
    directory: str
    file: str
    position: int
    text: str


class Audit(NamedTuple):
    """The findings, and the figures of a run."""

    rows: list[AuditRow]
    totals: dict[str, int]


def audit_directories(
    partitions: Sequence[FleetPartition], runner: Runner, *, target_bytes: int = TARGET_BYTES
) -> Audit:
    """Check the partitions; damage is a row, not an error. Raises TaskFailed, OSError."""
    filesystem = filesystem_for(each.directory for each in partitions)
    by_partition = [plan_tasks(each, filesystem, target_bytes) for each in partitions]
    counts = {tasks[0].partition.directory: len(tasks) for tasks in by_partition if tasks}
    # The largest tasks first, but partition by partition: reports are in memory until its end.
    by_size = sorted(
        by_partition, key=lambda some: -max((each.size_bytes for each in some), default=0)
    )
    tasks = [each for some in by_size for each in some]
    parts: dict[str, dict[int, AuditedSegments]] = {}
    joined: dict[str, Audit] = {}
    with (
        progress("audit", tasks) as on_done,
        closing(runner.stream(tasks, audit_segments)) as all_ended,
    ):
        for ended in all_ended:
            partition = ended.task.partition
            own = parts.setdefault(partition.directory, {})
            own[ended.number] = result_of(ended)
            on_done(ended.task)
            if len(own) == counts[partition.directory]:
                in_order = [own[number] for number in sorted(own)]
                joined[partition.directory] = _joined(partition, in_order)
                del parts[partition.directory], own, in_order
    found = [joined[directory] for directory in counts]
    return Audit(
        [row for each in found for row in each.rows],
        {name: sum(each.totals[name] for each in found) for name in _TOTALS},
    )


def plan_tasks(
    partition: FleetPartition, filesystem: ReadFilesystem, target_bytes: int
) -> list[AuditTask]:
    """The segments of a partition in groups of about ``target_bytes``, at least one."""
    try:
        stats = {each.name: each.size for each in filesystem.list_dir_stats(partition.directory)}
        listing = list_directory(partition.directory, filesystem)
    except FileNotFoundError:
        return []  # the partition was deleted
    if partition.is_served and partition.may_have_gaps:
        target_bytes = INT64_MAX
    sizes = [stats.get(segment_file_name(base, LOG_SUFFIX), 0) for base in listing.bases]
    packs = packed(sizes, target_bytes) or [Pack((), 0)]
    tasks: list[AuditTask] = []
    for pack in packs:
        bases = [listing.bases[each] for each in pack.numbers]
        tasks.append(
            AuditTask(
                partition,
                tuple(bases),
                listing.names.intersection(
                    segment_file_name(base, suffix) for base in bases for suffix in SEGMENT_SUFFIXES
                ),
                listing.bases[-1] if bases else None,
                pack.size_bytes,
                is_first=not tasks,
            )
        )
    return tasks


def audit_segments(task: AuditTask) -> AuditedSegments:
    """The work of one task. An OSError of a file is a finding as well."""
    partition = task.partition
    path = partition.directory
    filesystem = filesystem_for([path])
    reports: list[SegmentReport] = []
    others: list[Finding] = []
    for base in task.bases:
        report = checked_segment(partition, filesystem, base, task)
        if isinstance(report, Finding):
            others.append(report)
        else:
            reports.append(report)
    if not task.is_first:
        return AuditedSegments(None, None, tuple(reports), tuple(others))
    try:
        listing = _listing(partition, filesystem)
        small = checked_small_files(partition, filesystem, listing)
    except OSError as error:
        others.append(_unreadable("", error))
        listing, small = DirectoryListing(frozenset(), (), frozenset(), ()), SmallFiles((), None)
    return AuditedSegments(listing, small, tuple(reports), tuple(others))


def _wait_for_writer(partition: FleetPartition) -> None:
    """Wait before a second check: in a served directory a finding may be a write in progress."""
    if partition.is_served:
        SystemClock().sleep(_CHANGE_SECONDS)


def checked_small_files(
    partition: FleetPartition, filesystem: ReadFilesystem, listing: DirectoryListing
) -> SmallFiles:
    """The small files with the findings of the last check.

    A daemon creates an empty snapshot before it writes it, and may be delayed in between.
    """
    path = partition.directory
    small = check_small_files(path, filesystem, listing)
    for _ in range(_CHECKS_MAX if partition.is_served else 1):
        if not small.findings:
            break
        _wait_for_writer(partition)
        small = check_small_files(path, filesystem, list_directory(path, filesystem))
    return small


def _listing(partition: FleetPartition, filesystem: ReadFilesystem) -> DirectoryListing:
    """The names in the directory, with the findings that two checks have."""
    before = list_directory(partition.directory, filesystem)
    if not before.findings and not before.orphans:
        return before
    _wait_for_writer(partition)
    after = list_directory(partition.directory, filesystem)
    findings = tuple(
        each
        for each in after.findings
        if each in before.findings
        and not (partition.is_served and each.code is FindingCode.UNFINISHED_REPLACEMENT)
    )
    indexed = frozenset(after.bases) | (after.orphans & before.orphans)
    return replace(after, findings=findings, indexed=indexed)


def checked_segment(
    partition: FleetPartition,
    filesystem: ReadFilesystem,
    base: int,
    planned: AuditTask | None = None,
) -> SegmentReport | Finding:
    """The report of a segment with the findings that two checks have; or why there is none.

    planned  has the files of the first check: the directory is listed only for a second one
    """
    file = segment_file_name(base, LOG_SUFFIX)
    try:
        report = _check_as_planned(partition, filesystem, base, planned)
        if report.findings:
            _wait_for_writer(partition)
            again = _check(partition, filesystem, base)
            if partition.is_served:
                again = _check_after_swap(partition, filesystem, base, again)
            both = tuple(each for each in again.findings if each in report.findings)
            report = replace(again, findings=both)
    except FileNotFoundError:
        problem = "it disappeared during the check: deleted, or compacted away"
        return Finding(file, 0, problem, FindingCode.VANISHED, Severity.INFO)
    except OSError as error:
        return _unreadable(file, error)
    return report


def _check_after_swap(
    partition: FleetPartition, filesystem: ReadFilesystem, base: int, report: SegmentReport
) -> SegmentReport:
    """Check again when a missing index appears: a swap renames it after the log of its segment."""
    for _ in range(_CHECKS_MAX):
        missing = {each.file for each in report.findings if each.code is FindingCode.MISSING_FILE}
        if not missing:
            break
        SystemClock().sleep(_CHANGE_SECONDS)
        listing = list_directory(partition.directory, filesystem)
        if base in listing.bases and not missing <= listing.names:
            continue
        report = _check(partition, filesystem, base)
    return report


def _check_as_planned(
    partition: FleetPartition, filesystem: ReadFilesystem, base: int, planned: AuditTask | None
) -> SegmentReport:
    """Check a segment once, without a listing while its planned files are there."""
    if planned is not None:
        is_last = base == planned.last_base
        with contextlib.suppress(FileNotFoundError):
            return _check_files(partition, filesystem, base, planned.names, is_last=is_last)
    return _check(partition, filesystem, base)


def _check(partition: FleetPartition, filesystem: ReadFilesystem, base: int) -> SegmentReport:
    """Check a segment once as it is listed now. Raises FileNotFoundError if it is missing."""
    listing = list_directory(partition.directory, filesystem)
    if base not in listing.bases:
        raise FileNotFoundError(segment_file_name(base, LOG_SUFFIX))
    is_last = base == listing.bases[-1]
    return _check_files(partition, filesystem, base, listing.names, is_last=is_last)


def _check_files(
    partition: FleetPartition,
    filesystem: ReadFilesystem,
    base: int,
    names: frozenset[str],
    *,
    is_last: bool,
) -> SegmentReport:
    return check_segment(
        partition.directory,
        filesystem,
        base,
        names,
        is_last=is_last,
        may_have_gaps=partition.may_have_gaps,
    )


def _unreadable(file: str, error: OSError) -> Finding:
    return Finding(file, 0, f"cannot be read: {error.strerror or error}", FindingCode.UNREADABLE)


def _joined(partition: FleetPartition, own: Sequence[AuditedSegments]) -> Audit:
    """Join the results of a partition's tasks, in the order of its segments."""
    reports = [report for each in own for report in each.reports]
    listing, small = own[0].listing, own[0].small
    assert listing is not None, "the first task of a partition lists it"
    assert small is not None
    is_start_known = partition.knows_log_start and not partition.is_served
    others = [finding for each in own for finding in each.others]
    gone = (parse_segment_file(each.file) for each in others if each.code is FindingCode.VANISHED)
    findings = join_reports(
        listing,
        reports,
        small,
        is_compacted=partition.may_have_gaps,
        log_start_offset=partition.log_start_offset if is_start_known else None,
        vanished=frozenset(each.offset for each in gone if each is not None),
    )
    rows = [_row(partition, finding) for finding in (*findings, *others)]
    severities = Counter(row.severity for row in rows)
    figures = (
        *(1, len(reports)),
        sum(each.batch_count for each in reports),
        sum(each.size_bytes for each in reports),
        severities[Severity.ERROR.value],
        severities[Severity.WARNING.value],
    )
    return Audit(rows, dict(zip(_TOTALS, figures, strict=True)))


def _row(partition: FleetPartition, finding: Finding) -> AuditRow:
    return AuditRow(
        finding.severity.value,
        finding.code.value,
        partition.topic,
        partition.partition,
        partition.label,
        finding.file,
        finding.position,
        finding.problem,
    )
