"""Retention over HTTP: segments, passes, simulations and archived offsets.

An answer may name 20,000 segments: it is built and encoded on the control pool. Times are in ms
since 1970; one beyond the range of Kafka's timestamps is ``null``. An archiver raises the archived
offset after each commit; with ``archive.hold`` retention keeps what is above it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from aiohttp import web

from kafkalog.broker.operations import Operations
from kafkalog.errors import InvalidRequest, KafkalogError, UnknownSegment
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.retention.forecast import timestamp_or_none
from kafkalog.server.admin.operations import BEGUN, now_or_later
from kafkalog.server.api import api_of
from kafkalog.server.protocol.endpoint import PARTITION, Access, Answer, Routes
from kafkalog.server.protocol.errors import ApiError, FailedPartition, error_of
from kafkalog.server.protocol.json_schema import AnswerBody, PartitionAnswer, answer_of
from kafkalog.server.protocol.parameters import (
    base_offset_of,
    parse_timestamp,
    partition_of,
    topic_of,
)
from kafkalog.server.protocol.schemas import (
    MAX_PARTITIONS,
    ArchivedOffsetsRequest,
    RetainRequest,
    RetentionRunRequest,
    RetentionSimulateRequest,
    keys_of,
)
from kafkalog.server.security.audit import note_entries, note_subject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalog.broker.retention.report import RetentionOutcome, RetentionSimulation
    from kafkalog.log.inspect.segment_listing import IndexEntries, ListedSegment
    from kafkalog.log.retention import forecast
    from kafkalog.log.retention.forecast import Schedule, SegmentFate


ROUTES = Routes("retention")


# ---- segments


class Policy(AnswerBody):
    """What limits the log."""

    is_deleted: bool
    retention_ms: int
    retention_bytes: int


class Checks(AnswerBody):
    """When the log is checked, and by which task."""

    runs_in: Literal["kafka-log-retention", "log_cleaner"]
    next_check_ms: int | None
    check_interval_ms: int
    delete_delay_ms: int


class Due(AnswerBody):
    """When a segment is deleted."""

    earliest_ms: int
    expected_ms: int | None
    latest_ms: int | None
    files_gone_ms: int | None


class ServedSegment(AnswerBody):
    """A segment, with the rule that deletes it or what retains it."""

    base_offset: int
    next_offset: int
    size_bytes: int
    offset_index_entries: int
    offset_index_bytes: int
    time_index_entries: int
    time_index_bytes: int
    largest_timestamp_ms: int
    largest_timestamp_source: Literal["record", "file_mtime"]
    state: Literal["active", "inactive"]
    rule: str | None
    keeper: str | None
    bytes_until: int | None
    due: Due | None


class SegmentAnswer(ServedSegment):
    """One segment of a partition."""

    topic: str
    partition: int
    now_ms: int


class DeletingSegmentAnswer(AnswerBody):
    """Deleted for readers; its files are removed later."""

    base_offset: int
    size_bytes: int
    state: Literal["deleting"]
    files_gone_ms: int | None


class SegmentsAnswer(PartitionAnswer):
    """Every segment of a partition, oldest first."""

    now_ms: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    hold_offset: int | None
    hold_max_bytes: int | None
    held_segments: int
    held_bytes: int
    policy: Policy
    schedule: Checks | None
    segments: list[DeletingSegmentAnswer | ServedSegment]


@ROUTES.endpoint(
    f"GET {PARTITION}/segments/{{base_offset}}",
    "describeSegment",
    Access.DESCRIBE_TOPIC,
    "The segment.",
    errors=(404,),
)
def segment(request: web.Request, operations: Operations) -> SegmentAnswer:
    """The segment that begins at an offset: the rule that deletes it, or what retains it."""
    topic, partition = topic_of(request), partition_of(request)
    base_offset = base_offset_of(request)
    report = operations.retention.describe(topic, partition)
    for listed, fate in zip(report.segments, report.fates, strict=True):
        if listed.facts.base_offset == base_offset:
            (entries,) = operations.retention.count_index_entries(topic, partition, [listed])
            served = _served_segment(listed, entries, fate)
            return answer_of(SegmentAnswer, served, report, topic=topic, partition=partition)
    raise UnknownSegment(f"{topic}-{partition} has no segment {base_offset}")


@ROUTES.endpoint(
    f"GET {PARTITION}/segments", "listSegments", Access.DESCRIBE_TOPIC, "Oldest first."
)
def segments(request: web.Request, operations: Operations) -> SegmentsAnswer:
    """Every segment with the rule that deletes it or what retains it, and its deletion time."""
    topic, partition = topic_of(request), partition_of(request)
    report = operations.retention.describe(topic, partition)
    entries = operations.retention.count_index_entries(topic, partition, report.segments)
    hold = report.facts.hold
    deleting = [
        DeletingSegmentAnswer(
            each.base_offset, each.size_bytes, "deleting", timestamp_or_none(each.files_gone_ms)
        )
        for each in report.deleting
    ]
    return answer_of(
        SegmentsAnswer,
        report,
        report.facts,
        topic=topic,
        partition=partition,
        hold_offset=hold and hold.offset,
        hold_max_bytes=hold and hold.max_bytes,
        held_segments=report.held.segments,
        held_bytes=report.held.size_bytes,
        policy=Policy(*report.policy),
        schedule=_schedule(report.schedule),
        segments=[*deleting, *map(_served_segment, report.segments, entries, report.fates)],
    )


def _served_segment(
    segment: ListedSegment, entries: IndexEntries, fate: SegmentFate
) -> ServedSegment:
    return ServedSegment(
        base_offset=segment.facts.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.facts.size_bytes,
        offset_index_entries=entries.offset_index_entries,
        offset_index_bytes=entries.offset_index_bytes,
        time_index_entries=entries.time_index_entries,
        time_index_bytes=entries.time_index_bytes,
        largest_timestamp_ms=segment.facts.largest_timestamp_ms,
        largest_timestamp_source="record" if segment.has_record_timestamp else "file_mtime",
        state="active" if segment.is_active else "inactive",
        rule=fate.rule and fate.rule.value,
        keeper=fate.keeper and fate.keeper.value,
        bytes_until=fate.bytes_until,
        due=_due(fate.due),
    )


def _schedule(schedule: Schedule | None) -> Checks | None:
    """None: no task checks the log."""
    if schedule is None:
        return None
    return Checks(
        runs_in="log_cleaner" if schedule.is_cleaners else "kafka-log-retention",
        next_check_ms=timestamp_or_none(schedule.next_check_ms),
        check_interval_ms=schedule.check_interval_ms,
        delete_delay_ms=schedule.delete_delay_ms,
    )


def _due(due: forecast.Due | None) -> Due | None:
    if due is None or timestamp_or_none(due.moment_ms) is None:
        return None
    return Due(
        earliest_ms=due.moment_ms,
        expected_ms=timestamp_or_none(due.expected_ms),
        latest_ms=timestamp_or_none(due.latest_ms),
        files_gone_ms=timestamp_or_none(due.files_gone_ms),
    )


# ---- passes


class TakenSegment(AnswerBody):
    """A deleted segment, with the rule."""

    base_offset: int
    size_bytes: int
    reason: str


class RetainedPartition(PartitionAnswer):
    """What a pass deleted, or would delete."""

    log_start_offset: int
    bytes: int
    clock_held_segments: int
    clock_held_bytes: int
    segments: list[TakenSegment]


class RetainAnswer(RetainedPartition):
    """A pass over one partition."""

    dry_run: bool


class RetentionRunAnswer(AnswerBody):
    """A pass over several; a partition's failure is its own entry."""

    dry_run: bool
    segments: int
    bytes: int
    partitions: list[RetainedPartition | FailedPartition]


@ROUTES.endpoint(
    f"POST {PARTITION}/log:retain",
    "retainPartition",
    Access.DELETE_TOPIC,
    {200: Answer("What went.", RetainAnswer), 202: BEGUN},
    is_body_required=False,
)
async def retain(request: web.Request, wanted: RetainRequest) -> web.Response:
    """A pass over one partition: what it deleted, or with ``dry_run`` would delete, by rule."""
    api, key = api_of(request), TopicPartition(topic_of(request), partition_of(request))
    note_subject(request, dry_run=wanted.dry_run)

    def work() -> RetainAnswer:
        outcome = api.operations.retention.retain(key.topic, key.partition, dry_run=wanted.dry_run)
        return answer_of(RetainAnswer, _retained(key, outcome), dry_run=wanted.dry_run)

    return await now_or_later(request, "log-retain", work)


@ROUTES.endpoint(
    "POST /v1/retention:run",
    "runRetention",
    Access.DELETE_TOPIC,
    {200: Answer("An entry for each partition.", RetentionRunAnswer), 202: BEGUN},
    errors=(40002,),
)
async def run(request: web.Request, wanted: RetentionRunRequest) -> web.Response:
    """A pass over the named partitions, or over all; a partition's failure is its own entry."""
    api = api_of(request)
    keys = None if wanted.partitions is None else keys_of(wanted.partitions, MAX_PARTITIONS)
    note_entries(request, keys or (), dry_run=wanted.dry_run)

    def work() -> RetentionRunAnswer:
        answer = _run(api.operations, keys, dry_run=wanted.dry_run)
        # Of a 202 the audit line was written before.
        note_entries(request, answer.partitions, dry_run=wanted.dry_run)
        return answer

    return await now_or_later(request, "retention-run", work)


def _run(
    operations: Operations, keys: list[TopicPartition] | None, *, dry_run: bool
) -> RetentionRunAnswer:
    """Named partitions all have an entry; of others those with a deletion, hold or failure."""
    retained, entries = list[RetainedPartition](), list[RetainedPartition | FailedPartition]()
    for key, outcome in _outcomes(operations, keys, dry_run=dry_run):
        if isinstance(outcome, KafkalogError):
            entries.append(answer_of(FailedPartition, key, error_of(outcome)))
        elif keys is not None or outcome.deleted or outcome.clock_held.segments:
            retained.append(_retained(key, outcome))
            entries.append(retained[-1])
    return RetentionRunAnswer(
        dry_run=dry_run,
        segments=sum(len(each.segments) for each in retained),
        bytes=sum(each.bytes for each in retained),
        partitions=entries,
    )


def _outcomes(
    operations: Operations, keys: list[TopicPartition] | None, *, dry_run: bool
) -> Iterator[tuple[TopicPartition, RetentionOutcome | KafkalogError]]:
    if keys is None:
        yield from operations.retention.retain_all(dry_run=dry_run)
        return
    for key in keys:
        try:
            yield key, operations.retention.retain(key.topic, key.partition, dry_run=dry_run)
        except KafkalogError as error:
            yield key, error


def _retained(key: TopicPartition, outcome: RetentionOutcome) -> RetainedPartition:
    return RetainedPartition(
        topic=key.topic,
        partition=key.partition,
        log_start_offset=outcome.log_start_offset,
        bytes=sum(each.size_bytes for each in outcome.deleted),
        clock_held_segments=outcome.clock_held.segments,
        clock_held_bytes=outcome.clock_held.size_bytes,
        segments=[
            TakenSegment(each.base_offset, each.size_bytes, each.rule.value)
            for each in outcome.deleted
        ],
    )


class HeldPartition(PartitionAnswer):
    """What retention did not delete of a partition because the wall clock jumped ahead."""

    segments: int
    bytes: int


class AcceptClockAnswer(AnswerBody):
    """By how much the clock had jumped, and what was held until now."""

    jump_ms: int
    partitions: list[HeldPartition]


@ROUTES.endpoint(
    "POST /v1/retention:accept-clock",
    "acceptClock",
    Access.OPERATE_CLUSTER,
    "What was held.",
    errors=(50302, 50303),
)
def accept_clock(request: web.Request, operations: Operations) -> AcceptClockAnswer:
    """Trust the wall clock, which jumped ahead: retention deletes by it from now on. Durable.

    Without a jump nothing changes. On a full disk it is durable only with the first check that can
    write it: a crash before that leaves the hold.
    """
    subject = note_subject(request)
    held = operations.retention.accept_clock()
    subject["jump_ms"] = held.jump_ms
    partitions = [
        HeldPartition(key.topic, key.partition, *each) for key, each in sorted(held.logs.items())
    ]
    return AcceptClockAnswer(held.jump_ms, partitions)


# ---- what if


class Departure(AnswerBody):
    """A segment that would be deleted."""

    base_offset: int
    size_bytes: int
    reason: str
    due: Due | None


class SimulatedPartition(AnswerBody):
    """What would be deleted and what would be left."""

    partition: int
    start_ms: int
    end_ms: int | None
    policy: Policy
    schedule: Checks | None
    segments: list[Departure]
    segments_left: int
    bytes_left: int


class UnservedPartition(AnswerBody):
    """A partition that is not served."""

    partition: int
    error_code: int
    kafka_error: str
    error: str


class RetentionSimulateAnswer(AnswerBody):
    """By partition."""

    topic: str
    partitions: list[SimulatedPartition | UnservedPartition]


@ROUTES.endpoint(
    "POST /v1/retention:simulate",
    "simulateRetention",
    Access.DESCRIBE_TOPIC,
    "By partition.",
    errors=(40002, 40401, 40402, 50010, 50302, 50303, 50701),
)
def simulate(
    request: web.Request, operations: Operations, wanted: RetentionSimulateRequest
) -> RetentionSimulateAnswer:
    """What would be deleted within ``horizon_ms`` from ``at``, were these configs the topic's.

    ``check_interval_ms``: and were this log.retention.check.interval.ms.

    Of a whole topic, a partition that is not served has an error entry.
    """
    try:
        start_ms = None if wanted.at is None else parse_timestamp(str(wanted.at), "at")
    except ApiError as error:
        raise ApiError(40002, error.message) from error
    numbers = (
        range(operations.partition_count(wanted.topic))
        if wanted.partition is None
        else (wanted.partition,)
    )
    entries: list[SimulatedPartition | UnservedPartition] = []
    for number in numbers:
        try:
            simulation = operations.retention.simulate(
                wanted.topic,
                number,
                wanted.configs,
                start_ms=start_ms,
                horizon_ms=wanted.horizon_ms,
                check_interval_ms=wanted.check_interval_ms,
            )
        except InvalidRequest:
            raise  # the request's fault, not the partition's
        except KafkalogError as error:
            if wanted.partition is not None:
                raise
            entries.append(answer_of(UnservedPartition, error_of(error), partition=number))
        else:
            entries.append(_simulated(number, simulation))
    return RetentionSimulateAnswer(wanted.topic, entries)


def _simulated(partition: int, simulation: RetentionSimulation) -> SimulatedPartition:
    return answer_of(
        SimulatedPartition,
        simulation,
        partition=partition,
        end_ms=timestamp_or_none(simulation.end_ms),
        policy=Policy(*simulation.policy),
        schedule=_schedule(simulation.schedule),
        segments=[
            Departure(
                each.facts.base_offset, each.facts.size_bytes, each.rule.value, _due(each.due)
            )
            for each in simulation.departures
        ],
    )


_PATH = "/v1/topics/{topic}/archived-offsets"


class ArchivedPartition(AnswerBody):
    """How far one partition is archived; ``held``: at the last retention check.

    ``lag_bytes`` is an estimate. ``lag_seconds``: for how long the first record that is not
    archived can be read, since the start of the daemon at most; null: not known yet.
    """

    partition: int
    archived_offset: int
    log_start_offset: int
    high_watermark: int
    recovery_point: int
    lag: int
    lag_bytes: int
    lag_seconds: float | None
    held_segments: int
    held_bytes: int


class ArchivedOffsetsAnswer(AnswerBody):
    """The served partitions of a topic."""

    topic: str
    partitions: list[ArchivedPartition]


class RaisedOffset(AnswerBody):
    """The archived offset in force."""

    partition: int
    archived_offset: int


class RaisedOffsetsAnswer(AnswerBody):
    """The partitions of the request."""

    topic: str
    partitions: list[RaisedOffset]


@ROUTES.endpoint(f"GET {_PATH}", "listArchivedOffsets", Access.DESCRIBE_TOPIC, "By partition.")
def archived_offsets(request: web.Request, operations: Operations) -> ArchivedOffsetsAnswer:
    """How far each served partition is archived, and what ``archive.hold`` retains of it."""
    topic = topic_of(request)
    entries = [
        answer_of(
            ArchivedPartition,
            each,
            held_segments=each.held.segments,
            held_bytes=each.held.size_bytes,
        )
        for each in operations.retention.archived_offsets(topic)
    ]
    return ArchivedOffsetsAnswer(topic, entries)


@ROUTES.endpoint(
    f"POST {_PATH}:raise",
    "raiseArchivedOffsets",
    Access.DELETE_TOPIC,
    "What holds now.",
    errors=(40002, 40402, 41602, 50003, 50302, 50303, 50304, 50701),
)
def raise_archived_offsets(
    request: web.Request, operations: Operations, wanted: ArchivedOffsetsRequest
) -> RaisedOffsetsAnswer:
    """Say that an archive has everything below these offsets: all or none, durable.

    A lower offset than the one in force changes nothing; the answer has the one that holds. With
    ``topic_id`` a topic that was recreated under the name is not taken for the archived one.
    """
    topic = topic_of(request)
    for each in wanted.partitions:
        note_subject(request, partition=each.partition, offset=each.offset)
    offsets = {each.partition: each.offset for each in wanted.partitions}
    if len(offsets) < len(wanted.partitions):
        raise ApiError(40002, "Name each partition once.")
    risen = operations.retention.raise_archived_offsets(topic, offsets, wanted.topic_id)
    return RaisedOffsetsAnswer(topic, [RaisedOffset(*each) for each in sorted(risen.items())])
