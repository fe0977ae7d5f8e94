"""The offline format check of a partition directory: its segments joined, and its small files.

``verify_directory`` is what ``kafkalog segments verify DIR`` runs; an audit asks for the parts, so
that it can check segments of one partition at the same time (``check_segment``) and join what was
found. Opens files for reading only, needs no log object and believes nothing. Any thread; the
directory should not be written meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.format.disk.checkpoints import decode_leader_epochs
from kafkalog.format.disk.file_names import (
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    parse_segment_file,
    segment_file_name,
)
from kafkalog.format.disk.log_proofs import NOTHING_PROVEN
from kafkalog.format.disk.producer_snapshot import decode_snapshot
from kafkalog.format.integers import FormatError
from kafkalog.format.offset_ranges import not_accepted
from kafkalog.format.records.record_batch import add_to_sequence
from kafkalog.log.inspect.findings import Finding, FindingCode, Findings, Severity
from kafkalog.log.inspect.segment_check import check_segment, sequence_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.env.filesystem import ReadFilesystem
    from kafkalog.format.disk.log_proofs import CheckedOffsets
    from kafkalog.log.inspect.segment_check import ProducerSpan, SegmentReport


def verify_directory(
    path: str,
    filesystem: ReadFilesystem,
    *,
    is_compacted: bool = False,
    proof: CheckedOffsets = NOTHING_PROVEN,
) -> list[Finding]:
    """All errors in the order of the files; empty: the directory is sound. OSError passes.

    ``is_compacted``: known from elsewhere; offsets may be missing then. A gap inside a segment
    says so, too. ``proof``: of a gapless log no offset may be missing; what was given up may be.
    """
    listing = list_directory(path, filesystem)
    reports = [
        check_segment(
            path,
            filesystem,
            base,
            listing.names,
            is_last=base == listing.bases[-1],
            may_have_gaps=is_compacted,
            is_gapless=proof.is_gapless,
        )
        for base in listing.bases
    ]
    small = check_small_files(path, filesystem, listing)
    found = join_reports(listing, reports, small, is_compacted=is_compacted, proof=proof)
    return [each for each in found if each.severity is Severity.ERROR]


@dataclass(frozen=True, slots=True)
class DirectoryListing:
    """The files of a partition directory by name. ``bases``: of its segments, rising.

    indexed   bases that an index is there of
    """

    names: frozenset[str]
    bases: tuple[int, ...]
    indexed: frozenset[int]
    findings: tuple[Finding, ...]

    @property
    def orphans(self) -> frozenset[int]:
        """Bases that have an index and no log."""
        return self.indexed - frozenset(self.bases)


def list_directory(path: str, filesystem: ReadFilesystem) -> DirectoryListing:
    """What is there, and which names should not be. OSError."""
    names = [stat.name for stat in filesystem.list_dir_stats(path) if stat.is_file]
    findings = Findings()
    bases: list[int] = []
    indexed: set[int] = set()
    for name in names:
        try:
            parsed = parse_segment_file(name)
        except FormatError as error:
            findings.add(FindingCode.FILE_NAME, name, 0, error.reason)
            continue
        if parsed is None:
            continue
        if parsed.stage:
            if parsed.stage != ".deleted":
                problem = f"unfinished replacement: {parsed.stage}"
                findings.add(FindingCode.UNFINISHED_REPLACEMENT, name, 0, problem)
        elif parsed.suffix == LOG_SUFFIX:
            bases.append(parsed.offset)
        elif parsed.suffix in INDEX_SUFFIXES:
            indexed.add(parsed.offset)
    return DirectoryListing(
        frozenset(names), tuple(sorted(bases)), frozenset(indexed), tuple(findings.reported())
    )


@dataclass(frozen=True, slots=True)
class SmallFiles:
    """Snapshots and the epoch checkpoint; its entries, or None where there are none to read."""

    findings: tuple[Finding, ...]
    epochs: tuple[tuple[int, int], ...] | None


def check_small_files(
    path: str, filesystem: ReadFilesystem, listing: DirectoryListing
) -> SmallFiles:
    """They decode. OSError."""
    findings = Findings()
    epochs: tuple[tuple[int, int], ...] | None = None
    for name in sorted(listing.names):
        is_snapshot = name.endswith(SNAPSHOT_SUFFIX)
        if not is_snapshot and name != LEADER_EPOCH_CHECKPOINT:
            continue
        data = filesystem.read_file(f"{path}/{name}")
        try:
            if is_snapshot:
                decode_snapshot(data)
            else:
                epochs = tuple(decode_leader_epochs(data))
        except FormatError as error:
            code = FindingCode.SNAPSHOT if is_snapshot else FindingCode.EPOCH_CHECKPOINT
            findings.add(code, name, error.position or 0, error.reason)
    return SmallFiles(tuple(findings.reported()), epochs)


def join_reports(
    listing: DirectoryListing,
    reports: Sequence[SegmentReport],
    small: SmallFiles,
    *,
    is_compacted: bool,
    log_start_offset: int | None = None,
    vanished: frozenset[int] = frozenset(),
    proof: CheckedOffsets = NOTHING_PROVEN,
) -> list[Finding]:
    """All findings in the order of the files; reports are those of all segments, by base.

    ``log_start_offset``: no epoch below it is looked for in the checkpoint, which is cut from the
    start with the log. None, not known: the checkpoint's first entry is as far as it was cut.
    ``vanished``: bases of segments that were deleted while they were looked at; no offset and no
    sequence between the reports around them is missing.
    """
    if log_start_offset is None:
        log_start_offset = small.epochs[0][1] if small.epochs else 0
    join = _Join(listing, reports, small, log_start_offset, vanished, is_compacted, proof)
    return join.run()


@dataclass(eq=False)
class _Join:
    """One run over the segments of a partition."""

    _listing: DirectoryListing
    _reports: Sequence[SegmentReport]
    _small: SmallFiles
    _log_start_offset: int
    _vanished: frozenset[int]
    _is_known_compacted: bool
    _proof: CheckedOffsets

    def __post_init__(self) -> None:
        self._findings = Findings()
        self._producers: dict[int, tuple[int, int]] = {}  # epoch, last sequence

    def run(self) -> list[Finding]:
        """Names first, then segment by segment, then the small files."""
        self._findings.extend(self._listing.findings)
        next_offset, is_sound, last_epoch = -1, False, -1
        holes: list[tuple[int, int]] = []
        for report in self._reports:
            file = segment_file_name(report.base, LOG_SUFFIX)
            if report.base < next_offset:
                problem = f"overlaps the segment before, which ends at {next_offset}"
                self._findings.add(FindingCode.OVERLAP, file, 0, problem)
            elif any(next_offset <= base < report.base for base in self._vanished):
                self._producers.clear()  # how far they came in what vanished is not known
            elif report.base > next_offset and is_sound:
                holes.append((next_offset, report.base))
            self._findings.extend(report.findings)
            if report.epochs:
                last_epoch = self._check_epochs(file, report, last_epoch)
            for producer_id, span in report.producers.items():
                self._check_producer(file, producer_id, span)
            next_offset, is_sound = report.next_offset, report.is_sound
        self._report_missing(holes)
        self._findings.extend(self._small.findings)
        return self._findings.reported()

    def _report_missing(self, holes: list[tuple[int, int]]) -> None:
        """Offsets between two segments that no segment holds, and indexes whose log is missing.

        Compaction leaves holes too, most of them inside a segment: with such ones, only an index
        proves that a segment was there.
        """
        is_compacted = self._is_known_compacted or any(each.has_gaps for each in self._reports)
        accepted, is_gapless = self._proof.accepted_losses, self._proof.is_gapless
        orphans = {
            offset
            for offset in self._listing.orphans
            if not any(first <= offset <= last for first, last in accepted)
        }
        for first, last in not_accepted(((first, end - 1) for first, end in holes), accepted):
            within = {offset for offset in orphans if first <= offset <= last}
            orphans = orphans - within
            if within or is_gapless or not is_compacted:
                doubt = "" if within or is_gapless else ", unless the topic was compacted"
                problem = f"missing: no segment holds offsets {first} to {last}{doubt}"
                file = segment_file_name(first, LOG_SUFFIX)
                self._findings.add(FindingCode.MISSING_OFFSETS, file, 0, problem)
        for offset in sorted(orphans):
            file = segment_file_name(offset, LOG_SUFFIX)
            self._findings.add(FindingCode.MISSING_FILE, file, 0, "missing: it has an index")

    def _check_epochs(self, file: str, report: SegmentReport, last_epoch: int) -> int:
        """Epochs do not fall from segment to segment, and are those of the checkpoint."""
        first = report.epochs[0]
        if first.epoch < last_epoch:
            problem = f"leader epoch {first.epoch} behind {last_epoch}"
            code = FindingCode.LEADER_EPOCH
            self._findings.add(code, file, first.position, problem, Severity.WARNING)
        for run in report.epochs if self._small.epochs else ():
            offset = max(run.base_offset, self._log_start_offset)
            known = self._checkpointed_epoch(offset)
            if offset < run.end_offset and known != run.epoch:
                there = "none" if known is None else known
                problem = f"leader epoch {run.epoch} at offset {offset}"
                self._findings.add(
                    FindingCode.EPOCH_CHECKPOINT,
                    file,
                    run.position,
                    f"{problem}, where the checkpoint has {there}",
                    Severity.WARNING,
                )
        return report.epochs[-1].epoch

    def _checkpointed_epoch(self, offset: int) -> int | None:
        """The epoch of an offset as the checkpoint has it; None: below its first entry."""
        known = None
        for epoch, start in self._small.epochs or ():
            if start <= offset:
                known = epoch
        return known

    def _check_producer(self, file: str, producer_id: int, span: ProducerSpan) -> None:
        """The first batches of a producer in a segment follow the last ones before it."""
        state = self._producers.get(producer_id)
        self._producers[producer_id] = (span.last_epoch, span.last_sequence)
        if state is None:
            return
        epoch, last_sequence = state
        if span.first_epoch < epoch:
            problem = f"epoch {span.first_epoch} of producer {producer_id} behind {epoch}"
            code, position = FindingCode.PRODUCER_EPOCH, span.first_position
            self._findings.add(code, file, position, problem, Severity.WARNING)
        if span.last_epoch == epoch and span.first_data_epoch is None:
            self._producers[producer_id] = state  # markers alone: the sequence is still known
        if span.first_data_epoch is None or self._is_known_compacted:
            return
        expected = 0
        if span.first_data_epoch == epoch:
            expected = add_to_sequence(last_sequence, 1)
        if span.first_data_sequence != expected and span.first_data_epoch >= epoch:
            self._findings.add(
                FindingCode.PRODUCER_SEQUENCE,
                file,
                span.first_data_position,
                sequence_problem(producer_id, span.first_data_sequence, expected),
                Severity.WARNING,
            )
