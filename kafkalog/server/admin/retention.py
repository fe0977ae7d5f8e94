"""Retention over HTTP: segments, passes, simulations and archived offsets (N11, N12).

An answer may name 20,000 segments: it is built and encoded on the control pool. Times are in ms
since 1970; one beyond the range of Kafka's timestamps is ``null``. An archiver raises the archived
offset after each commit; with ``archive.hold`` retention keeps what is above it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web
from msgspec import structs

from kafkalog.errors import InvalidRequest, KafkalogError, UnknownSegment
from kafkalog.format.topic_names import TopicPartition
from kafkalog.log.retention.forecast import timestamp_or_none
from kafkalog.server.admin.answers_logs import (
    ArchivedOffsetsAnswer,
    ArchivedPartition,
    Checks,
    DeletingSegmentAnswer,
    Departure,
    Due,
    Policy,
    RaisedOffset,
    RaisedOffsetsAnswer,
    RetainAnswer,
    RetainedPartition,
    RetentionRunAnswer,
    RetentionSimulateAnswer,
    SegmentAnswer,
    SegmentsAnswer,
    ServedSegment,
    SimulatedPartition,
    TakenSegment,
    UnservedPartition,
)
from kafkalog.server.admin.operations import BEGUN, now_or_later
from kafkalog.server.api import api_of
from kafkalog.server.protocol.endpoint import Access, Action, Answer, Resource, endpoint
from kafkalog.server.protocol.errors import ApiError, FailedPartition, entry_error
from kafkalog.server.protocol.media_types import JSON
from kafkalog.server.protocol.parameters import (
    base_offset_of,
    parse_timestamp,
    partition_of,
    topic_of,
)
from kafkalog.server.protocol.replies import json_reply
from kafkalog.server.protocol.schemas import (
    MAX_PARTITIONS,
    ArchivedOffsetsRequest,
    PartitionName,
    RetainRequest,
    RetentionRunRequest,
    RetentionSimulateRequest,
    read_body,
)
from kafkalog.server.security.audit import note_entries, note_subject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkalog.broker.operations import Operations
    from kafkalog.broker.retention.report import (
        RetentionOutcome,
        RetentionSimulation,
    )
    from kafkalog.broker.retention.retention import DeletedSegment
    from kafkalog.log.inspect.segment_listing import IndexEntries, ListedSegment
    from kafkalog.log.retention import forecast
    from kafkalog.log.retention.forecast import Schedule, SegmentFate
    from kafkalog.log.retention.plan import RetentionPolicy


ROUTES = web.RouteTableDef()
_DESCRIBE = Access(Action.DESCRIBE, Resource.TOPIC)
_DELETE = Access(Action.DELETE, Resource.TOPIC)


# ---- segments


@ROUTES.get("/v1/topics/{topic}/partitions/{partition}/segments/{base_offset}")
@endpoint(
    "describeSegment",
    "retention",
    _DESCRIBE,
    {200: Answer("The segment.", {JSON: SegmentAnswer})},
    errors=(404,),
)
async def segment(request: web.Request) -> web.Response:
    """The segment that begins at an offset: the rule that deletes it, or what retains it."""
    api = api_of(request)
    topic, partition = topic_of(request), partition_of(request)
    return await api.blocking(_segment, api.operations, topic, partition, base_offset_of(request))


def _segment(operations: Operations, topic: str, partition: int, base_offset: int) -> web.Response:
    report = operations.describe_segments(topic, partition)
    for listed, fate in zip(report.segments, report.fates, strict=True):
        if listed.facts.base_offset == base_offset:
            (entries,) = operations.count_index_entries(topic, partition, [listed])
            served = structs.asdict(_served_segment(listed, entries, fate))
            return json_reply(
                SegmentAnswer(topic=topic, partition=partition, now_ms=report.now_ms, **served)
            )
    raise UnknownSegment(f"{topic}-{partition} has no segment {base_offset}")


@ROUTES.get("/v1/topics/{topic}/partitions/{partition}/segments")
@endpoint(
    "listSegments", "retention", _DESCRIBE, {200: Answer("Oldest first.", {JSON: SegmentsAnswer})}
)
async def segments(request: web.Request) -> web.Response:
    """Every segment with the rule that deletes it or what retains it, and its deletion time."""
    api = api_of(request)
    topic, partition = topic_of(request), partition_of(request)
    return await api.blocking(_segments, api.operations, topic, partition)


def _segments(operations: Operations, topic: str, partition: int) -> web.Response:
    report = operations.describe_segments(topic, partition)
    entries = operations.count_index_entries(topic, partition, report.segments)
    facts = report.facts
    deleting = [
        DeletingSegmentAnswer(
            base_offset=each.base_offset,
            size_bytes=each.size_bytes,
            state="deleting",
            files_gone_ms=timestamp_or_none(each.files_gone_ms),
        )
        for each in report.deleting
    ]
    served = map(_served_segment, report.segments, entries, report.fates)
    return json_reply(
        SegmentsAnswer(
            topic=topic,
            partition=partition,
            now_ms=report.now_ms,
            log_start_offset=facts.log_start_offset,
            high_watermark=facts.high_watermark,
            log_end_offset=facts.log_end_offset,
            size_bytes=facts.size_bytes,
            hold_offset=facts.hold and facts.hold.offset,
            hold_max_bytes=facts.hold and facts.hold.max_bytes,
            held_segments=report.held.segments,
            held_bytes=report.held.size_bytes,
            policy=_policy(report.policy),
            schedule=_schedule(report.schedule),
            segments=[*deleting, *served],
        )
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


def _policy(policy: RetentionPolicy) -> Policy:
    return Policy(
        is_deleted=policy.is_deleted,
        retention_ms=policy.retention_ms,
        retention_bytes=policy.retention_bytes,
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


@ROUTES.post("/v1/topics/{topic}/partitions/{partition}/log:retain")
@endpoint(
    "retainPartition",
    "retention",
    _DELETE,
    {200: Answer("What went.", {JSON: RetainAnswer}), 202: BEGUN},
    body={JSON: RetainRequest},
    is_body_required=False,
)
async def retain(request: web.Request) -> web.Response:
    """A pass over one partition: what it deleted, or with ``dry_run`` would delete, by rule."""
    api = api_of(request)
    topic, partition = topic_of(request), partition_of(request)
    wanted = await read_body(RetainRequest, request, api, is_required=False)
    note_subject(request, dry_run=wanted.dry_run)
    key = TopicPartition(topic, partition)
    return await now_or_later(
        request,
        "log-retain",
        key,
        lambda: _retain(api.operations, key, dry_run=wanted.dry_run),
    )


def _retain(operations: Operations, key: TopicPartition, *, dry_run: bool) -> RetainAnswer:
    outcome = operations.retain(key.topic, key.partition, dry_run=dry_run)
    return RetainAnswer(dry_run, **structs.asdict(_retained(key, outcome)))


@ROUTES.post("/v1/retention:run")
@endpoint(
    "runRetention",
    "retention",
    _DELETE,
    {200: Answer("An entry for each partition.", {JSON: RetentionRunAnswer}), 202: BEGUN},
    body={JSON: RetentionRunRequest},
    errors=(40002,),
)
async def run(request: web.Request) -> web.Response:
    """A pass over the named partitions, or over all; a partition's failure is its own entry."""
    api = api_of(request)
    wanted = await read_body(RetentionRunRequest, request, api)
    if wanted.partitions is not None:
        _check_names(wanted.partitions)
    note = partial(note_entries, request, dry_run=wanted.dry_run)
    note(name.model_dump() for name in wanted.partitions or ())
    return await now_or_later(
        request, "retention-run", None, lambda: _run(api.operations, wanted, note)
    )


def _check_names(names: list[PartitionName]) -> None:
    if not 1 <= len(names) <= MAX_PARTITIONS:
        raise ApiError(40002, f"Name 1 to {MAX_PARTITIONS} partitions, or leave them out for all.")
    if len({(name.topic, name.partition) for name in names}) < len(names):
        raise ApiError(40002, "Name each partition once.")


def _run(
    operations: Operations,
    wanted: RetentionRunRequest,
    note: Callable[[list[RetainedPartition | FailedPartition]], None],
) -> RetentionRunAnswer:
    """Named partitions all have an entry; of others those with a deletion or a failure.

    They are noted for the audit line; with a 202 that line was written before.
    """
    entries: list[RetainedPartition | FailedPartition] = []
    deleted: list[DeletedSegment] = []
    for key, outcome in _outcomes(operations, wanted):
        if isinstance(outcome, KafkalogError):
            entries.append(FailedPartition(key.topic, key.partition, **entry_error(outcome)))
            continue
        deleted += outcome.deleted
        if wanted.partitions is not None or outcome.deleted:
            entries.append(_retained(key, outcome))
    note(entries)
    return RetentionRunAnswer(
        dry_run=wanted.dry_run,
        segments=len(deleted),
        bytes=sum(each.size_bytes for each in deleted),
        partitions=entries,
    )


def _outcomes(
    operations: Operations, wanted: RetentionRunRequest
) -> Iterator[tuple[TopicPartition, RetentionOutcome | KafkalogError]]:
    if wanted.partitions is None:
        yield from operations.retain_all(dry_run=wanted.dry_run)
        return
    for name in wanted.partitions:
        key = TopicPartition(name.topic, name.partition)
        try:
            outcome = operations.retain(name.topic, name.partition, dry_run=wanted.dry_run)
        except KafkalogError as error:
            yield key, error
        else:
            yield key, outcome


def _retained(key: TopicPartition, outcome: RetentionOutcome) -> RetainedPartition:
    return RetainedPartition(
        topic=key.topic,
        partition=key.partition,
        log_start_offset=outcome.log_start_offset,
        bytes=sum(each.size_bytes for each in outcome.deleted),
        segments=[
            TakenSegment(each.base_offset, each.size_bytes, each.rule.value)
            for each in outcome.deleted
        ],
    )


# ---- what if


@ROUTES.post("/v1/retention:simulate")
@endpoint(
    "simulateRetention",
    "retention",
    _DESCRIBE,
    {200: Answer("By partition.", {JSON: RetentionSimulateAnswer})},
    body={JSON: RetentionSimulateRequest},
    errors=(40002, 40401, 40402, 50010, 50302, 50303, 50701),
)
async def simulate(request: web.Request) -> web.Response:
    """What would be deleted within ``horizon_ms`` from ``at``, were these configs the topic's.

    Of a whole topic, a partition that is not served has an error entry.
    """
    api = api_of(request)
    wanted = await read_body(RetentionSimulateRequest, request, api)
    return await api.blocking(_simulate, api.operations, wanted)


def _simulate(operations: Operations, wanted: RetentionSimulateRequest) -> web.Response:
    start_ms = None if wanted.at is None else _parse_at(str(wanted.at))
    numbers = (
        range(operations.partition_count(wanted.topic))
        if wanted.partition is None
        else (wanted.partition,)
    )
    entries: list[SimulatedPartition | UnservedPartition] = []
    for number in numbers:
        try:
            simulation = operations.simulate_retention(
                wanted.topic,
                number,
                wanted.configs,
                start_ms=start_ms,
                horizon_ms=wanted.horizon_ms,
            )
        except InvalidRequest:
            raise  # the request's fault, not the partition's
        except KafkalogError as error:
            if wanted.partition is not None:
                raise
            entries.append(UnservedPartition(number, **entry_error(error)))
        else:
            entries.append(_simulated(number, simulation))
    return json_reply(RetentionSimulateAnswer(wanted.topic, entries))


def _parse_at(text: str) -> int:
    try:
        return parse_timestamp(text, "at")
    except ApiError as error:
        raise ApiError(40002, error.message) from error


def _simulated(partition: int, simulation: RetentionSimulation) -> SimulatedPartition:
    return SimulatedPartition(
        partition=partition,
        start_ms=simulation.start_ms,
        end_ms=timestamp_or_none(simulation.end_ms),
        policy=_policy(simulation.policy),
        schedule=_schedule(simulation.schedule),
        segments=[
            Departure(
                base_offset=each.facts.base_offset,
                size_bytes=each.facts.size_bytes,
                reason=each.rule.value,
                due=_due(each.due),
            )
            for each in simulation.departures
        ],
        segments_left=simulation.segments_left,
        bytes_left=simulation.bytes_left,
    )


_PATH = "/v1/topics/{topic}/archived-offsets"


@ROUTES.get(_PATH)
@endpoint(
    "listArchivedOffsets",
    "retention",
    Access(Action.DESCRIBE, Resource.TOPIC),
    {200: Answer("By partition.", {JSON: ArchivedOffsetsAnswer})},
)
async def archived_offsets(request: web.Request) -> web.Response:
    """How far each served partition is archived, and what ``archive.hold`` retains of it."""
    api, topic = api_of(request), topic_of(request)
    return await api.blocking(_list, api.operations, topic)


def _list(operations: Operations, topic: str) -> web.Response:
    entries = [
        ArchivedPartition(
            partition=each.partition,
            archived_offset=each.archived_offset,
            log_start_offset=each.log_start_offset,
            high_watermark=each.high_watermark,
            lag=each.lag,
            held_segments=each.held.segments,
            held_bytes=each.held.size_bytes,
        )
        for each in operations.archived_offsets(topic)
    ]
    return json_reply(ArchivedOffsetsAnswer(topic, entries))


@ROUTES.post(f"{_PATH}:raise")
@endpoint(
    "raiseArchivedOffsets",
    "retention",
    Access(Action.DELETE, Resource.TOPIC),
    {200: Answer("What holds now.", {JSON: RaisedOffsetsAnswer})},
    body={JSON: ArchivedOffsetsRequest},
    errors=(40002, 40402, 41602, 50003, 50302, 50303, 50304, 50701),
)
async def raise_archived_offsets(request: web.Request) -> web.Response:
    """Say that an archive has everything below these offsets: all or none, durable.

    A lower offset than the one in force changes nothing; the answer has the one that holds. With
    ``topic_id`` a topic that was recreated under the name is not taken for the archived one.
    """
    api, topic = api_of(request), topic_of(request)
    wanted = await read_body(ArchivedOffsetsRequest, request, api)
    for each in wanted.partitions:
        note_subject(request, partition=each.partition, offset=each.offset)
    offsets = {each.partition: each.offset for each in wanted.partitions}
    if len(offsets) < len(wanted.partitions):
        raise ApiError(40002, "Name each partition once.")
    return await api.blocking(_raise, api.operations, topic, offsets, wanted.topic_id)


def _raise(
    operations: Operations, topic: str, offsets: Mapping[int, int], topic_id: str | None
) -> web.Response:
    risen = operations.raise_archived_offsets(topic, offsets, topic_id)
    entries = [RaisedOffset(number, offset) for number, offset in sorted(risen.items())]
    return json_reply(RaisedOffsetsAnswer(topic, entries))
