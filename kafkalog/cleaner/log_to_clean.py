"""LogToClean: a log and the range of the round that is to clean it.

Gathers the facts of a log for the pure planner, from what the log published and, where a
compaction lag asks for timestamps, from the heads and indexes of dirty segments. Any thread; may
read. Source: Kafka's LogToClean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafkalog.cleaner.cleaning_plan import (
    CheckpointFault,
    CleaningFacts,
    CleaningPlan,
    SegmentFacts,
    first_dirty,
    needs_first_timestamps,
    needs_largest_timestamps,
    plan_cleaning,
)

if TYPE_CHECKING:
    from kafkalog.log.log_config import LogConfig
    from kafkalog.log.log_segment import LogSegment
    from kafkalog.log.unified_log import UnifiedLog


@dataclass(frozen=True, slots=True)
class LogToClean:
    """See the module. ``checkpoint_fault``: the checkpoint has to be set to first_dirty_offset."""

    log: UnifiedLog
    plan: CleaningPlan
    checkpoint_fault: CheckpointFault | None = None

    @classmethod
    def of(cls, log: UnifiedLog, checkpoint: int | None, now_ms: int) -> LogToClean:
        """The round that cleaning ``log`` at now_ms would be; checkpoint None: never cleaned.

        Raises OSError, and CorruptIndex when a time index cannot be read or made anew.
        """
        config, segments = log.config, log.segments.values
        dirty = first_dirty(checkpoint, log.log_start_offset, log.log_end_offset)
        first_asked = log.segments.floor(dirty.offset) or segments[0]
        facts = CleaningFacts(
            segments=tuple(
                _facts_of(each, config, now_ms)
                if each.base_offset >= first_asked.base_offset and each is not segments[-1]
                else SegmentFacts(each.base_offset, each.size_bytes)
                for each in segments
            ),
            first_dirty_offset=dirty.offset,
            last_stable_offset=log.last_stable_offset,
        )
        return cls(log, plan_cleaning(facts, config, now_ms), dirty.fault)

    @property
    def first_dirty_offset(self) -> int:
        """Everything below was cleaned before."""
        return self.plan.first_dirty_offset

    @property
    def first_uncleanable_offset(self) -> int:
        """Base of the first segment that stays as it is."""
        return self.plan.first_uncleanable_offset

    @property
    def clean_bytes(self) -> int:
        """Of segments that begin below first_dirty_offset."""
        return self.plan.clean_bytes

    @property
    def cleanable_bytes(self) -> int:
        """Of segments from the one that holds first_dirty_offset to first_uncleanable_offset."""
        return self.plan.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """The filthiest log has the highest."""
        return self.plan.cleanable_ratio

    @property
    def needs_compaction_now(self) -> bool:
        """Whether max.compaction.lag.ms asks for it."""
        return self.plan.needs_compaction_now

    @property
    def is_eligible(self) -> bool:
        """Whether it may be picked; not while it is disputed where the log starts."""
        return self.plan.is_eligible and self.log.disputed_start_offset is None


def _facts_of(segment: LogSegment, config: LogConfig, now_ms: int) -> SegmentFacts:
    """Facts of a dirty segment; reads only what the plan asks for."""
    largest = segment.largest_timestamp_ms() if needs_largest_timestamps(config) else None
    asks_first = needs_first_timestamps(config, now_ms)
    return SegmentFacts(
        segment.base_offset,
        segment.size_bytes,
        largest_timestamp_ms=largest,
        first_timestamp_ms=segment.first_batch_timestamp_ms() if asks_first else None,
    )
