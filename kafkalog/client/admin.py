"""Topics, configs, groups, deletion of records, logs, transactions and the daemon itself.

Documents are those of docs/reference/http.md. Every operation may raise a ClientError; docstrings
name those that a caller may want to distinguish. An operation that is not repeated after a lost
answer (OutcomeUnknown) says so: check its outcome before you call it again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kafkalog.client.errors import BadAnswer, document_of, entry_failure
from kafkalog.client.messages import JSON, Answer, Json, Repeat, Request, given, json_body, path_of
from kafkalog.client.records import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalog.client.errors import ClientError
    from kafkalog.client.retry import Steps


Partition = tuple[str, int]
ResetPlace = Literal["earliest", "latest", "timestamp", "offset", "shift"]
HIGH_WATERMARK = -1
_PASS_SECONDS = 600.0  # a retention pass may delete many files
_CLEAN_SECONDS = 86_400.0  # a clean of a large log takes long


def call(
    method: str,
    path: str,
    body: object = None,
    *,
    query: Mapping[str, str | int] | None = None,
    accept: str = JSON,
    content_type: str = JSON,
    repeat: Repeat | None = None,
    wait_seconds: float = 0.0,
) -> Steps[Answer]:
    """Any route of the API, for those without a method here.

    path          quoted, see ``path_of``
    body          bytes as they are, anything else as JSON
    repeat        None: a GET always, other methods only if nothing was done
    wait_seconds  how long the daemon may take beyond the client's timeout
    """
    if repeat is None:
        repeat = Repeat.ALWAYS if method == "GET" else Repeat.IF_NOTHING_WAS_DONE
    data = body if body is None or isinstance(body, bytes) else json_body(body)
    request = Request(
        method, path, query or {}, data, content_type, accept, repeat, wait_seconds=wait_seconds
    )
    return (yield request)


def _get(path: str, **query: str | int) -> Steps[Json]:
    answer = yield Request("GET", path, query)
    document: Json = document_of(answer)
    return document


def _get_list(path: str, **query: str | int) -> Steps[list[Any]]:
    answer = yield Request("GET", path, query)
    entries: list[Any] = document_of(answer)
    return entries


def _post(
    path: str,
    document: object,
    repeat: Repeat = Repeat.IF_NOTHING_WAS_DONE,
    *,
    method: str = "POST",
    wait_seconds: float = 0.0,
) -> Steps[Json]:
    answer = yield Request(
        method, path, body=json_body(document), repeat=repeat, wait_seconds=wait_seconds
    )
    answered: Json = document_of(answer)
    return answered


def _cluster() -> Steps[tuple[str, ...]]:
    """The path of the daemon's one cluster, as names."""
    (cluster,) = _entries((yield from _get("/v3/clusters")), "data")
    return "v3", "clusters", cluster["cluster_id"]


def _entries(document: Json, name: str) -> list[Any]:
    """The list of a document. Raises BadAnswer."""
    entries = document.get(name) if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise BadAnswer(f"The answer has no {name}: it is not from the daemon.")
    return entries


def _named(partitions: Iterable[Partition]) -> list[Json]:
    return [{"topic": topic, "partition": number} for topic, number in partitions]


# ---- topics


def list_topics() -> Steps[list[str]]:
    """Names of all topics, sorted, internal ones too."""
    return sorted((yield from _get_list("/topics", include_internal="true")))


def describe_topics() -> Steps[list[Json]]:
    """Every topic: id, partition count, overrides, partitions that are not served."""
    path = path_of(*(yield from _cluster()), "topics")
    return _entries((yield from _get(path, include_internal="true")), "data")


def describe_topic(topic: str) -> Steps[Json]:
    """One topic. Raises UnknownTopic."""
    path = path_of(*(yield from _cluster()), "topics", topic)
    return (yield from _get(path))


def partitions(topic: str) -> Steps[list[Json]]:
    """Its partitions by number; one that is not served has ``error_code`` and ``error``.

    Raises UnknownTopic.
    """
    return (yield from _get_list(path_of("topics", topic, "partitions")))


def create_topic(
    topic: str, *, partitions: int | None = None, configs: Mapping[str, str] | None = None
) -> Steps[Json]:
    """Create a topic; durable when this returns. Not repeated after a lost answer.

    partitions  None: num.partitions of the daemon

    Raises TopicExists, InvalidRequest (name, configs).
    """
    named = [{"name": name, "value": value} for name, value in (configs or {}).items()]
    wanted = {"topic_name": topic, "configs": named, **given(partitions_count=partitions)}
    path = path_of(*(yield from _cluster()), "topics")
    return (yield from _post(path, wanted))


def grow_topic(topic: str, partitions: int) -> Steps[None]:
    """Add partitions, all or none. Not repeated after a lost answer.

    partitions  the new number of partitions

    Raises UnknownTopic, InvalidRequest when the number is not higher.
    """
    path = path_of(*(yield from _cluster()), "topics", topic)
    yield from _post(path, {"partitions_count": partitions}, method="PATCH")


def delete_topic(topic: str) -> Steps[None]:
    """Delete a topic and, after its delay, its files.

    Raises UnknownTopic, also when the answer of the try that deleted it was lost.
    """
    path = path_of(*(yield from _cluster()), "topics", topic)
    yield Request("DELETE", path)


# ---- configs


def topic_configs(topic: str) -> Steps[list[Json]]:
    """Every config of a topic with its sources, strongest first. Raises UnknownTopic."""
    path = path_of(*(yield from _cluster()), "topics", topic, "configs")
    return _entries((yield from _get(path)), "data")


def alter_topic_configs(
    topic: str, to_set: Mapping[str, str] | None = None, *, to_delete: Iterable[str] = ()
) -> Steps[None]:
    """Set configs and reset others to their defaults: all or none, durable, in force at once.

    Raises UnknownTopic, InvalidRequest.
    """
    path = path_of(*(yield from _cluster()), "topics", topic, "configs:alter")
    yield from _post(path, _alteration(to_set, to_delete), Repeat.ALWAYS)


def broker_id() -> Steps[int]:
    """The id of the node."""
    (node,) = _entries((yield from _get("/brokers")), "brokers")
    return int(node)


def broker_configs() -> Steps[list[Json]]:
    """Every config of the daemon with its sources."""
    node = yield from broker_id()
    path = path_of(*(yield from _cluster()), "brokers", node, "configs")
    return _entries((yield from _get(path)), "data")


def alter_broker_configs(
    to_set: Mapping[str, str] | None = None, *, to_delete: Iterable[str] = ()
) -> Steps[None]:
    """As ``alter_topic_configs``, of the configs that change at run time. Raises InvalidRequest."""
    node = yield from broker_id()
    path = path_of(*(yield from _cluster()), "brokers", node, "configs:alter")
    yield from _post(path, _alteration(to_set, to_delete), Repeat.ALWAYS)


def _alteration(to_set: Mapping[str, str] | None, to_delete: Iterable[str]) -> Json:
    steps = [{"name": name, "value": value} for name, value in (to_set or {}).items()]
    steps += [{"name": name, "operation": "DELETE"} for name in to_delete]
    return {"data": steps}


# ---- records


@dataclass(frozen=True, slots=True)
class LowWatermark:
    """The new log start of a partition after a deletion, or why there is none."""

    topic: str
    partition: int
    low_watermark: int
    error: ClientError | None = None


def delete_records(offsets: Mapping[Partition, int]) -> Steps[list[LowWatermark]]:
    """Delete records below an offset of each (topic, partition); durable when this returns.

    ``HIGH_WATERMARK`` (-1) deletes all that can be read. It is not repeated after a lost answer,
    because it would delete records appended meanwhile. The failure of a partition is the ``error``
    of its entry.
    """
    wanted = [
        {"topic": topic, "partition": number, "offset": offset}
        for (topic, number), offset in offsets.items()
    ]
    is_absolute = HIGH_WATERMARK not in offsets.values()
    answer = yield from _post(
        "/v1/records:delete",
        {"partitions": wanted, "version": 1},
        Repeat.ALWAYS if is_absolute else Repeat.IF_NOTHING_WAS_DONE,
    )
    return [
        LowWatermark(
            entry["topic"],
            entry["partition"],
            entry.get("low_watermark", NO_OFFSET),
            entry_failure(entry),
        )
        for entry in _entries(answer, "partitions")
    ]


# ---- groups


def list_groups() -> Steps[list[Json]]:
    """Groups that have committed offsets or members."""
    return _entries((yield from _get("/v1/groups")), "groups")


def describe_group(group: str) -> Steps[Json]:
    """Members and committed offsets of a group, with lags. Raises UnknownGroup."""
    return (yield from _get(path_of("v1", "groups", group)))


def delete_group(group: str) -> Steps[None]:
    """Delete a group without members, with all its committed offsets.

    Raises NonEmptyGroup, UnknownGroup, also when the answer of the try that deleted it was lost.
    """
    yield Request("DELETE", path_of("v1", "groups", group))


def group_offsets(group: str) -> Steps[dict[Partition, int]]:
    """The committed offsets of a group: the next records it will read. Empty if it is unknown."""
    answer = yield from _get(path_of("v1", "groups", group, "offsets"))
    commits = _entries(answer, "offsets")
    return {(each["topic"], each["partition"]): each["offset"] for each in commits}


def commit_offsets(
    group: str, offsets: Mapping[Partition, int], *, metadata: str = ""
) -> Steps[None]:
    """Commit offsets of a group, all or none, exactly as given; durable when this returns.

    Raises UnknownTopic, UnknownPartition.
    """
    entries = [
        {"topic": topic, "partition": number, "offset": offset, "metadata": metadata}
        for (topic, number), offset in offsets.items()
    ]
    path = path_of("v1", "groups", group, "offsets")
    yield from _post(path, {"offsets": entries}, Repeat.ALWAYS, method="PUT")


def reset_group_offsets(
    group: str,
    to: ResetPlace,
    value: int | str | None = None,
    *,
    topics: Iterable[str] | None = None,
    partitions: Iterable[tuple[str, int]] = (),
    dry_run: bool = True,
) -> Steps[list[Json]]:
    """Reset the offsets of a group without members, or show what they would be.

    value       of a timestamp (ms since 1970 or ISO-8601), an offset or a shift
    topics      None, without partitions: all that it has committed
    partitions  also these

    Not repeated after a lost answer unless ``dry_run``. The failure of a partition is its entry.
    Raises UnknownGroup, NonEmptyGroup, InvalidRequest.
    """
    wanted: Json = {"to": to, "dry_run": dry_run, **given(**{to: value})}
    wanted["topics"] = None if topics is None else list(topics)
    named = [{"topic": topic, "partition": number} for topic, number in partitions]
    wanted["partitions"] = named or None
    answer = yield from _post(
        path_of("v1", "groups", group, "offsets:reset"),
        wanted,
        Repeat.ALWAYS if dry_run else Repeat.IF_NOTHING_WAS_DONE,
    )
    return _entries(answer, "offsets")


# ---- logs, retention, the cleaner


def describe_log(topic: str, partition: int) -> Steps[Json]:
    """Start, end, recovery point and size of a log."""
    return (yield from _get(_log(topic, partition, "log")))


def explain_retention(topic: str, partition: int) -> Steps[Json]:
    """Every segment: why it is kept, and when it is deleted."""
    return (yield from _get(_log(topic, partition, "segments")))


def roll_log(topic: str, partition: int) -> Steps[Json]:
    """Roll the active segment, unless it is empty."""
    return (yield from _post(_log(topic, partition, "log:roll"), {}, Repeat.ALWAYS))


def flush_log(topic: str, partition: int) -> Steps[Json]:
    """Everything appended is durable when this returns."""
    return (yield from _post(_log(topic, partition, "log:flush"), {}, Repeat.ALWAYS))


def losses(topic: str, partition: int) -> Steps[Json]:
    """Offsets that the partition has lost: ``lost`` and ``accepted``, of first and last offset."""
    return (yield from _get(_log(topic, partition, "losses")))


def accept_loss(topic: str, partition: int, first_offset: int, last_offset: int) -> Steps[Json]:
    """Accept the loss of a range of ``losses``, permanently; the losses left. InvalidRequest.

    Durable when this returns; accepting it again changes nothing.
    """
    body: Json = {"first_offset": first_offset, "last_offset": last_offset}
    return (yield from _post(_log(topic, partition, "losses:accept"), body, Repeat.ALWAYS))


def _log(topic: str, partition: int, what: str) -> str:
    return path_of("v1", "topics", topic, "partitions", partition, what)


def run_retention(
    partitions: Iterable[Partition] | None = None, *, dry_run: bool = False
) -> Steps[Json]:
    """Run a retention pass over these partitions or all; dry_run: show what it would delete."""
    named = None if partitions is None else _named(partitions)
    wanted = {"dry_run": dry_run, **given(partitions=named)}
    path = "/v1/retention:run"
    return (yield from _post(path, wanted, Repeat.ALWAYS, wait_seconds=_PASS_SECONDS))


def accept_clock() -> Steps[Json]:
    """Let retention go by the wall clock although it jumped ahead; what it held until now."""
    return (yield from _post("/v1/retention:accept-clock", {}, Repeat.ALWAYS))


def simulate_retention(
    topic: str,
    configs: Mapping[str, str],
    horizon_ms: int,
    *,
    at: str | None = None,
    partition: int | None = None,
    check_interval_ms: int | None = None,
) -> Steps[Json]:
    """What retention would delete within the horizon with these configs. Changes nothing.

    check_interval_ms   between two checks; None: the daemon's log.retention.check.interval.ms
    """
    wanted: Json = {"topic": topic, "configs": dict(configs), "horizon_ms": horizon_ms}
    wanted |= given(at=at, partition=partition, check_interval_ms=check_interval_ms)
    return (yield from _post("/v1/retention:simulate", wanted, Repeat.ALWAYS))


def cleaner_status(topic: str | None = None) -> Steps[Json]:
    """The cleaner threads, and the logs of one topic or all."""
    return (yield from _get("/v1/cleaner", **given(topic=topic)))


def run_cleaner(
    partitions: Iterable[Partition] | None = None, *, dry_run: bool = False
) -> Steps[list[Json]]:
    """Clean now; None: all logs that have something to clean. May take hours.

    Not repeated after a lost answer. The failure of a partition is its entry.
    """
    wanted: Json = {} if partitions is None else {"partitions": _named(partitions)}
    if dry_run:
        wanted["dry_run"] = True
    answer = yield from _post("/v1/cleaner:run", wanted, wait_seconds=_CLEAN_SECONDS)
    return _entries(answer, "partitions")


def steer_cleaner(
    topic: str, partition: int, action: Literal["pause", "resume", "abort", "retry"]
) -> Steps[Json]:
    """Control the cleaning of a partition. Not repeated after a lost answer: pauses are counted."""
    document = {"topic": topic, "partition": partition}
    return (yield from _post(f"/v1/cleaner:{action}", document))


# ---- the daemon


def info() -> Steps[Json]:
    """Version, cluster, listeners, limits, features."""
    return (yield from _get("/v1/info"))


def check_ready() -> Steps[None]:
    """Raises ClientError when the daemon is not ready to serve."""
    yield Request("GET", "/readyz", repeat=Repeat.IF_NOTHING_WAS_DONE)


def describe_log_dirs(topics: str = "") -> Steps[Json]:
    """Partitions of each log directory (of topics ``a,b``, or all) with their bytes."""
    return (yield from _get("/v1/log-dirs", topics=topics))


def describe_tasks() -> Steps[Json]:
    """The background tasks: when each ran and runs next, and what failed."""
    return (yield from _get("/v1/tasks"))


def begin_backup(
    directory: str, *, topics: Iterable[str] | None = None, is_linked: bool = True
) -> Steps[Json]:
    """Start a backup into a directory of the daemon's machine; returns an operation to follow.

    Not repeated after a lost answer. Raises InvalidRequest, Conflict when one is running.
    """
    named = None if topics is None else list(topics)
    wanted = {"directory": directory, "link": is_linked, **given(topics=named)}
    return (yield from _post("/v1/backups", wanted))


def describe_operation(operation_id: str) -> Steps[Json]:
    """The progress of an operation. Raises NotFound when the daemon has forgotten it."""
    return (yield from _get(path_of("v1", "operations", operation_id)))


def begin_moves(moves: Mapping[Partition, str]) -> Steps[list[Json]]:
    """Move each (topic, partition) to another log directory. A refusal is its entry."""
    wanted = [
        {"topic": topic, "partition": number, "log_dir": log_dir}
        for (topic, number), log_dir in moves.items()
    ]
    answer = yield from _post("/v1/partition-moves", {"moves": wanted}, Repeat.ALWAYS)
    return _entries(answer, "moves")


def list_moves() -> Steps[list[Json]]:
    """Moves in progress, and the last ended one of each partition since the start."""
    return _entries((yield from _get("/v1/partition-moves")), "moves")


def cancel_move(topic: str, partition: int) -> Steps[Json]:
    """Cancel a move; the partition stays in its log directory. Raises NotFound without a move."""
    answer = yield Request("DELETE", path_of("v1", "partition-moves", topic, partition))
    entry: Json = document_of(answer)
    return entry


def archived_offsets(topic: str) -> Steps[list[Json]]:
    """The archived offset of each served partition of a topic, its lag, and what is held for it.

    Raises UnknownTopic.
    """
    return _entries(
        (yield from _get(path_of("v1", "topics", topic, "archived-offsets"))), "partitions"
    )


def raise_archived_offsets(
    topic: str, offsets: Mapping[int, int], topic_id: str | None = None
) -> Steps[dict[int, int]]:
    """Record that all records below these offsets of partitions are archived: all or none.

    topic_id   of the topic that was archived (`describe_topic`): a topic that was recreated under
               the name is UnknownTopic

    Returns the offsets in force. Durable when this returns; a lower offset than the one in force
    changes nothing. Raises UnknownTopic, UnknownPartition, OffsetAboveHighWatermark.
    """
    entries = [{"partition": number, "offset": offset} for number, offset in offsets.items()]
    path = path_of("v1", "topics", topic, "archived-offsets:raise")
    answer = yield from _post(
        path, {"partitions": entries, **given(topic_id=topic_id)}, Repeat.ALWAYS
    )
    return {each["partition"]: each["archived_offset"] for each in _entries(answer, "partitions")}


# ---- transactions


def describe_producers(topic: str, partition: int) -> Steps[list[Json]]:
    """The producers that the log of a partition remembers, by id.

    ``current_transaction_start_offset`` is where the producer's open transaction begins, or None.
    Raises UnknownTopic, UnknownPartition.
    """
    return _entries((yield from _get(_log(topic, partition, "producers"))), "producers")


def abort_transaction(topic: str, partition: int, start_offset: int) -> Steps[Json]:
    """Abort the transaction that begins at an offset, which came with an adopted directory.

    Durable when this returns. Raises UnknownTopic, UnknownPartition, and Conflict when no open
    transaction begins there, or when it is a sink's.
    """
    body = {"start_offset": start_offset}
    return (yield from _post(_log(topic, partition, "transactions:abort"), body))
