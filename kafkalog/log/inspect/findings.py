"""What a check of files finds: broken rules by file, byte, code and weight.

Values alone. The codes are for programs and stay as they are; the texts are for people.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

FINDINGS_MAX = 20  # of one file; a zeroed index breaks a rule with each of a million entries


class Severity(enum.Enum):
    """ERROR: no sound log has it. WARNING: some have, and the reason should be known."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class FindingCode(enum.Enum):
    """Which rule is broken; the value is what rows show."""

    FILE_NAME = "file_name"
    UNFINISHED_REPLACEMENT = "unfinished_replacement"
    MISSING_FILE = "missing_file"
    OVERLAP = "overlap"
    MISSING_OFFSETS = "missing_offsets"  # between segments
    OFFSET_GAP = "offset_gap"  # inside a segment, or between its name and its first batch
    BATCH_CRC = "batch_crc"
    BATCH_MAGIC = "batch_magic"
    BATCH_SIZE = "batch_size"
    TORN_TAIL = "torn_tail"
    OFFSET_ORDER = "offset_order"
    OFFSET_RANGE = "offset_range"
    LAST_OFFSET_DELTA = "last_offset_delta"
    LEADER_EPOCH = "leader_epoch"
    PRODUCER_EPOCH = "producer_epoch"
    PRODUCER_SEQUENCE = "producer_sequence"
    OFFSET_INDEX = "offset_index"
    TIME_INDEX = "time_index"
    TRANSACTION_INDEX = "transaction_index"
    SNAPSHOT = "snapshot"
    EPOCH_CHECKPOINT = "epoch_checkpoint"
    UNREADABLE = "unreadable"
    VANISHED = "vanished"  # while it was looked at


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule: file name inside the directory, byte, and what is wrong there."""

    file: str
    position: int
    problem: str
    code: FindingCode
    severity: Severity = Severity.ERROR


class Findings:
    """The findings of a check, at most FINDINGS_MAX shown of a file; the others are counted."""

    def __init__(self) -> None:
        self._shown: list[Finding] = []
        self._counts: Counter[str] = Counter()

    def add(
        self,
        code: FindingCode,
        file: str,
        position: int,
        problem: str,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Note one."""
        self._counts[file] += 1
        if self._counts[file] <= FINDINGS_MAX:
            self._shown.append(Finding(file, position, problem, code, severity))

    def count(self, file: str, more: int) -> None:
        """More of a file, which are not shown."""
        self._counts[file] += more

    def extend(self, findings: Iterable[Finding]) -> None:
        """Take over findings as they were reported."""
        for each in findings:
            self._counts[each.file] += 1
            self._shown.append(each)

    def reported(self) -> list[Finding]:
        """The findings, and after the last one of a file how many more it has."""
        reported: list[Finding] = []
        shown: Counter[str] = Counter()
        left = Counter(each.file for each in self._shown)
        for finding in self._shown:
            reported.append(finding)
            shown[finding.file] += 1
            more = self._counts[finding.file] - left[finding.file]
            if shown[finding.file] == left[finding.file] and more > 0:
                text = f"... {more} more"
                reported.append(
                    Finding(finding.file, finding.position, text, finding.code, finding.severity)
                )
        return reported
