"""Job ``audit``: every batch, index, producer sequence and epoch of any number of directories.

The rules are those of ``kafkalog segments verify`` and its warnings (``log.inspect.segment_check``,
``log.inspect.directory_check``). A task checks neighbouring segments of one partition, up to about
TARGET_BYTES; the merge joins the segments of each partition, so that sequences and epochs are
followed over the whole log. Files are only read.

A directory may be served meanwhile: a segment or directory in which something is found is looked
at again, and what the second look does not find was a write under way. A segment that is gone by
then was deleted or compacted away: told as ``vanished``, for information. The segments of a
compacted partition that is served are looked at in order, by one task: a swap in between then shows
as segments that are gone, never as an overlap; what its cleaner is writing is no finding. Offsets
that are missing count as compacted where the topic's configs or the cleaner's checkpoint say so,
else as a warning. A served log may begin behind its checkpointed start by now: what its epochs are
compared from is the first entry of their own checkpoint then.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.env.clock import SystemClock
from kafkalog.format.disk.file_names import LOG_SUFFIX, parse_segment_file, segment_file_name
from kafkalog.format.integers import INT64_MAX
from kafkalog.jobs.tasks import Job, run_job
from kafkalog.log.inspect.directory_check import (
    DirectoryListing,
    SmallFiles,
    check_small_files,
    join_reports,
    list_directory,
)
from kafkalog.log.inspect.findings import Finding, FindingCode, Severity
from kafkalog.log.inspect.segment_check import check_segment
from kafkalog.spark.logs.object_store import filesystem_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.jobs.fleet import FleetPartition
    from kafkalog.jobs.tasks import Progress, Runner
    from kafkalog.log.inspect.segment_check import SegmentReport

TARGET_BYTES = 128 << 20
"""Of log in one task: a partition that is larger is checked in several at once."""

_CHANGE_SECONDS = 0.2  # within which a daemon renames the files of a swap, most of the time
_LOOKS_MAX = 20  # at what may be a write under way: a daemon on a slow disk needs longer


@dataclass(frozen=True, slots=True)
class AuditTask:
    """Neighbouring segments of a partition; the first task of it looks at the small files, too."""

    partition: FleetPartition
    bases: tuple[int, ...]
    size_bytes: int
    is_first: bool

    @property
    def label(self) -> str:
        """See Task."""
        first = f" from {self.bases[0]} on" if self.bases else ""
        return f"{self.partition.label}{first}"


@dataclass(frozen=True, slots=True)
class AuditedSegments:
    """What a task found. ``told``: findings that are no segment's; ``small``: of the first task."""

    listing: DirectoryListing | None
    small: SmallFiles | None
    reports: tuple[SegmentReport, ...]
    told: tuple[Finding, ...] = ()


class AuditRow(NamedTuple):
    """One finding. ``file`` inside ``directory``; ``position`` the byte in it."""

    severity: str
    code: str
    topic: str
    partition: int
    directory: str
    file: str
    position: int
    text: str


@dataclass(slots=True)
class Audit:
    """The findings and what was looked at."""

    rows: list[AuditRow] = field(default_factory=list)
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    size_bytes: int = 0

    @property
    def totals(self) -> dict[str, Any]:
        """The figures of a run."""
        return {
            "partitions": self.partitions,
            "segments": self.segments,
            "batches": self.batches,
            "bytes": self.size_bytes,
            "errors": sum(row.severity == Severity.ERROR.value for row in self.rows),
            "warnings": sum(row.severity == Severity.WARNING.value for row in self.rows),
        }


def audit_directories(
    partitions: Sequence[FleetPartition],
    runner: Runner,
    *,
    target_bytes: int = TARGET_BYTES,
    progress: Progress | None = None,
) -> Audit:
    """Check the partitions; damage is a row, never an error. TaskFailed, OSError of a listing."""
    filesystem = filesystem_for(each.directory for each in partitions)
    tasks = [task for each in partitions for task in plan_tasks(each, filesystem, target_bytes)]
    job = Job("audit", tasks, audit_segments, merge=lambda found: _merged(tasks, found))
    return run_job(job, runner, progress)


def plan_tasks(
    partition: FleetPartition, filesystem: ReadFilesystem, target_bytes: int
) -> list[AuditTask]:
    """The segments of a partition in groups of about so many bytes; one task without any."""
    try:
        stats = {each.name: each.size for each in filesystem.list_dir_stats(partition.directory)}
        bases = list_directory(partition.directory, filesystem).bases
    except FileNotFoundError:
        return []  # deleted since it was found
    if partition.is_served and partition.may_have_gaps:
        target_bytes = INT64_MAX
    groups: list[list[int]] = [[]]
    sizes = [0]
    for base in bases:
        size = stats.get(segment_file_name(base, LOG_SUFFIX), 0)
        if groups[-1] and sizes[-1] + size > target_bytes:
            groups.append([])
            sizes.append(0)
        groups[-1].append(base)
        sizes[-1] += size
    return [
        AuditTask(partition, tuple(group), size, is_first=number == 0)
        for number, (group, size) in enumerate(zip(groups, sizes, strict=True))
    ]


def audit_segments(task: AuditTask) -> AuditedSegments:
    """The work of one task. OSError of a file is a row as well."""
    partition = task.partition
    path = partition.directory
    filesystem = filesystem_for([path])
    reports: list[SegmentReport] = []
    told: list[Finding] = []
    for base in task.bases:
        report = checked_segment(partition, filesystem, base)
        if isinstance(report, Finding):
            told.append(report)
        else:
            reports.append(report)
    if not task.is_first:
        return AuditedSegments(None, None, tuple(reports), tuple(told))
    try:
        listing = _listing(partition, filesystem)
        small = checked_small_files(partition, filesystem, listing)
    except OSError as error:
        told.append(_unreadable("", error))
        listing, small = DirectoryListing(frozenset(), (), frozenset(), ()), SmallFiles((), None)
    return AuditedSegments(listing, small, tuple(reports), tuple(told))


def _wait_for_writer(partition: FleetPartition) -> None:
    """Before another look: what is found may be a write under way, where somebody writes."""
    if partition.is_served:
        SystemClock().sleep(_CHANGE_SECONDS)


def checked_small_files(
    partition: FleetPartition, filesystem: ReadFilesystem, listing: DirectoryListing
) -> SmallFiles:
    """What the small files are, with what is found at a last look.

    A daemon makes a snapshot empty before it writes it, and may be held up in between.
    """
    path = partition.directory
    small = check_small_files(path, filesystem, listing)
    for _ in range(_LOOKS_MAX if partition.is_served else 1):
        if not small.findings:
            break
        _wait_for_writer(partition)
        small = check_small_files(path, filesystem, list_directory(path, filesystem))
    return small


def _listing(partition: FleetPartition, filesystem: ReadFilesystem) -> DirectoryListing:
    """The names of the directory, with what is wrong about them at both of two looks."""
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
    partition: FleetPartition, filesystem: ReadFilesystem, base: int
) -> SegmentReport | Finding:
    """The report of a segment, with what two looks have found; or why there is none."""
    file = segment_file_name(base, LOG_SUFFIX)
    try:
        report = _look(partition, filesystem, base)
        if report.findings:
            _wait_for_writer(partition)
            again = _look(partition, filesystem, base)
            if partition.is_served:
                again = _look_after_swap(partition, filesystem, base, again)
            both = tuple(each for each in again.findings if each in report.findings)
            report = replace(again, findings=both)
    except FileNotFoundError:
        problem = "gone while it was looked at: deleted, or compacted away"
        return Finding(file, 0, problem, FindingCode.VANISHED, Severity.INFO)
    except OSError as error:
        return _unreadable(file, error)
    return report


def _look_after_swap(
    partition: FleetPartition, filesystem: ReadFilesystem, base: int, report: SegmentReport
) -> SegmentReport:
    """Once more when the missing index is there: a swap renames it after the log of its segment."""
    for _ in range(_LOOKS_MAX):
        missing = {each.file for each in report.findings if each.code is FindingCode.MISSING_FILE}
        if not missing:
            break
        SystemClock().sleep(_CHANGE_SECONDS)
        listing = list_directory(partition.directory, filesystem)
        if base in listing.bases and not missing <= listing.names:
            continue
        report = _look(partition, filesystem, base)
    return report


def _look(partition: FleetPartition, filesystem: ReadFilesystem, base: int) -> SegmentReport:
    """As it is now; FileNotFoundError when it no longer is."""
    listing = list_directory(partition.directory, filesystem)
    if base not in listing.bases:
        raise FileNotFoundError(segment_file_name(base, LOG_SUFFIX))
    return check_segment(
        partition.directory,
        filesystem,
        base,
        listing.names,
        is_last=base == listing.bases[-1],
        may_have_gaps=partition.may_have_gaps,
    )


def _unreadable(file: str, error: OSError) -> Finding:
    return Finding(file, 0, f"cannot be read: {error}", FindingCode.UNREADABLE)


def _merged(tasks: Sequence[AuditTask], found: Sequence[AuditedSegments]) -> Audit:
    """The findings of each partition, in the order of the partitions."""
    audit = Audit()
    parts: dict[str, list[AuditedSegments]] = {}
    partitions = {each.partition.directory: each.partition for each in tasks}
    for task, each in zip(tasks, found, strict=True):
        parts.setdefault(task.partition.directory, []).append(each)
    for directory, own in parts.items():
        partition = partitions[directory]
        reports = [report for each in own for report in each.reports]
        listing, small = own[0].listing, own[0].small
        assert listing is not None, "the first task of a partition lists it"
        assert small is not None
        is_start_known = partition.knows_log_start and not partition.is_served
        others = [finding for each in own for finding in each.told]
        gone = (
            parse_segment_file(each.file) for each in others if each.code is FindingCode.VANISHED
        )
        told = join_reports(
            listing,
            reports,
            small,
            is_compacted=partition.may_have_gaps,
            log_start_offset=partition.log_start_offset if is_start_known else None,
            vanished=frozenset(each.offset for each in gone if each is not None),
        )
        audit.rows += [_row(partition, finding) for finding in (*told, *others)]
        audit.partitions += 1
        audit.segments += len(reports)
        audit.batches += sum(each.batch_count for each in reports)
        audit.size_bytes += sum(each.size_bytes for each in reports)
    return audit


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
