"""Topics, configs, groups, delete-records and everything an operator asks a daemon.

Answers that are documents stay what docs/http.md says of them. Each may raise a ClientError;
docstrings name those that a caller will want to tell apart. What is not repeated after a lost
answer (OutcomeUnknown) says so: look before you call again.

What a job that archives topics tells the daemon: how far it has come.

Transactions that are open in a partition, and an end to one that nobody else ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kafkalog.client.errors import BadAnswer, document_of, entry_failure
from kafkalog.client.messages import JSON, Answer, Json, Repeat, Request, json_body, path_of
from kafkalog.client.records import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalog.client.errors import ClientError
    from kafkalog.client.retry import Steps


Partition = tuple[str, int]
HIGH_WATERMARK = -1
_CLEAN_SECONDS = 86_400.0  # a clean of a large log takes its time


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
    """Any route of the API: for what has no method here.

    path          quoted, see ``path_of``
    body          bytes as they are, anything else as JSON
    repeat        None: a GET always, anything else only if nothing was done
    wait_seconds  how long the daemon may take beyond the client's time-out
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


def _get_list(path: str) -> Steps[list[Any]]:
    answer = yield Request("GET", path)
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
        raise BadAnswer(f"The answer has no {name}: it is not the daemon's.")
    return entries


def _named(partitions: Iterable[Partition]) -> list[Json]:
    return [{"topic": topic, "partition": number} for topic, number in partitions]


# ---- topics


def list_topics() -> Steps[list[str]]:
    """Names of all topics, sorted, internal ones too."""
    return sorted((yield from _get_list("/topics")))


def describe_topics() -> Steps[list[Json]]:
    """Every topic: id, partition count, overrides, partitions that are not served."""
    path = path_of(*(yield from _cluster()), "topics")
    return _entries((yield from _get(path)), "data")


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
    """Make a topic, durable when this returns. Not repeated after a lost answer.

    partitions  None: num.partitions of the daemon

    Raises TopicExists, InvalidRequest (name, configs).
    """
    named = [{"name": name, "value": value} for name, value in (configs or {}).items()]
    wanted: Json = {"topic_name": topic, "configs": named}
    if partitions is not None:
        wanted["partitions_count"] = partitions
    path = path_of(*(yield from _cluster()), "topics")
    return (yield from _post(path, wanted))


def grow_topic(topic: str, partitions: int) -> Steps[None]:
    """Give it more partitions, all or none. Not repeated after a lost answer.

    partitions  how many it shall have

    Raises UnknownTopic, InvalidRequest when it has as many.
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
    """Set configs and put others back to their default: all or none, durable, at once in force.

    Raises UnknownTopic, InvalidRequest.
    """
    path = path_of(*(yield from _cluster()), "topics", topic, "configs:alter")
    yield from _post(path, _alteration(to_set, to_delete), Repeat.ALWAYS)


def broker_id() -> Steps[int]:
    """The number of the one node."""
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
    """The new log start of a partition whose records were deleted, or why they were not."""

    topic: str
    partition: int
    low_watermark: int
    error: ClientError | None = None


def delete_records(offsets: Mapping[Partition, int]) -> Steps[list[LowWatermark]]:
    """Delete records below an offset of each (topic, partition); durable when this returns.

    ``HIGH_WATERMARK`` (-1) stands for all that can be read, and is not repeated after a lost
    answer: it would take what came meanwhile. A partition's failure is the ``error`` of its entry.
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
    """Groups that have commits or members."""
    return _entries((yield from _get("/v1/groups")), "groups")


def describe_group(group: str) -> Steps[Json]:
    """Members and commits beside the logs, with lags. Raises UnknownGroup."""
    return (yield from _get(path_of("v1", "groups", group)))


def delete_group(group: str) -> Steps[None]:
    """All commits of a group without members.

    Raises NonEmptyGroup, UnknownGroup, also when the answer of the try that deleted it was lost.
    """
    yield Request("DELETE", path_of("v1", "groups", group))


def group_offsets(group: str) -> Steps[dict[Partition, int]]:
    """What a group has committed: the next record that it wants. Nothing of an unknown one."""
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
    to: Literal["earliest", "latest", "timestamp", "offset", "shift"],
    value: int | str | None = None,
    *,
    topics: Iterable[str] | None = None,
    dry_run: bool = True,
) -> Steps[list[Json]]:
    """Set the offsets of a group without members, or say what they would be.

    value   of a timestamp (ms since 1970 or ISO-8601), an offset or a shift
    topics  None: all that it has committed

    Not repeated after a lost answer unless ``dry_run``. A partition's failure is its entry's.
    Raises UnknownGroup, NonEmptyGroup, InvalidRequest.
    """
    wanted: Json = {"to": to, "dry_run": dry_run}
    if value is not None:
        wanted[to] = value
    wanted["topics"] = None if topics is None else list(topics)
    answer = yield from _post(
        path_of("v1", "groups", group, "offsets:reset"),
        wanted,
        Repeat.ALWAYS if dry_run else Repeat.IF_NOTHING_WAS_DONE,
    )
    return _entries(answer, "offsets")


# ---- logs, retention, the cleaner


def describe_log(topic: str, partition: int) -> Steps[Json]:
    """Where a log begins and ends, what of it is durable, its size."""
    return (yield from _get(_log(topic, partition, "log")))


def explain_retention(topic: str, partition: int) -> Steps[Json]:
    """Every segment: why it is still here, and when it goes."""
    return (yield from _get(_log(topic, partition, "segments")))


def roll_log(topic: str, partition: int) -> Steps[Json]:
    """Close the active segment; an empty one stays."""
    return (yield from _post(_log(topic, partition, "log:roll"), {}, Repeat.ALWAYS))


def flush_log(topic: str, partition: int) -> Steps[Json]:
    """Everything appended is durable when this returns."""
    return (yield from _post(_log(topic, partition, "log:flush"), {}, Repeat.ALWAYS))


def losses(topic: str, partition: int) -> Steps[Json]:
    """Offsets that the partition has lost: ``lost`` and ``accepted``, of first and last offset."""
    return (yield from _get(_log(topic, partition, "losses")))


def accept_loss(topic: str, partition: int, first_offset: int, last_offset: int) -> Steps[Json]:
    """Give up a lost range as ``losses`` names it, for good; what is left. Raises InvalidRequest.

    Durable when this returns; accepting it again changes nothing.
    """
    body: Json = {"first_offset": first_offset, "last_offset": last_offset}
    return (yield from _post(_log(topic, partition, "losses:accept"), body, Repeat.ALWAYS))


def _log(topic: str, partition: int, what: str) -> str:
    return path_of("v1", "topics", topic, "partitions", partition, what)


def run_retention(
    partitions: Iterable[Partition] | None = None, *, dry_run: bool = False
) -> Steps[Json]:
    """A retention pass now, over these partitions or over all; dry: what would go."""
    wanted: Json = {"dry_run": dry_run}
    if partitions is not None:
        wanted["partitions"] = _named(partitions)
    return (yield from _post("/v1/retention:run", wanted, Repeat.ALWAYS))


def simulate_retention(
    topic: str,
    configs: Mapping[str, str],
    horizon_ms: int,
    *,
    at: str | None = None,
    partition: int | None = None,
) -> Steps[Json]:
    """What would go within so many ms if these were the topic's configs. Changes nothing."""
    wanted: Json = {"topic": topic, "configs": dict(configs), "horizon_ms": horizon_ms}
    if at is not None:
        wanted["at"] = at
    if partition is not None:
        wanted["partition"] = partition
    return (yield from _post("/v1/retention:simulate", wanted, Repeat.ALWAYS))


def cleaner_status(topic: str | None = None) -> Steps[Json]:
    """The cleaner's threads and logs, of one topic or all."""
    query: dict[str, str | int] = {} if topic is None else {"topic": topic}
    return (yield from _get("/v1/cleaner", **query))


def run_cleaner(
    partitions: Iterable[Partition] | None = None, *, dry_run: bool = False
) -> Steps[list[Json]]:
    """Clean now; None: all that have something to clean. May take hours.

    Not repeated after a lost answer. A partition's failure is its entry's.
    """
    wanted: Json = {} if partitions is None else {"partitions": _named(partitions)}
    if dry_run:
        wanted["dry_run"] = True
    answer = yield from _post("/v1/cleaner:run", wanted, wait_seconds=_CLEAN_SECONDS)
    return _entries(answer, "partitions")


def steer_cleaner(
    topic: str, partition: int, action: Literal["pause", "resume", "abort", "retry"]
) -> Steps[Json]:
    """One partition's cleaning; pauses are counted, so none is repeated after a lost answer."""
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
    """The background tasks: when each ran, runs next, what failed."""
    return (yield from _get("/v1/tasks"))


def begin_backup(
    directory: str, *, topics: Iterable[str] | None = None, is_linked: bool = True
) -> Steps[Json]:
    """Begin to copy the logs into a directory of the daemon's machine: an operation to follow.

    Not repeated after a lost answer. Raises InvalidRequest, Conflict when one is running.
    """
    wanted: Json = {"directory": directory, "link": is_linked}
    if topics is not None:
        wanted["topics"] = list(topics)
    return (yield from _post("/v1/backups", wanted))


def describe_operation(operation_id: str) -> Steps[Json]:
    """How far work is that outlasts its request. Raises NotFound when it is forgotten."""
    return (yield from _get(path_of("v1", "operations", operation_id)))


def begin_moves(moves: Mapping[Partition, str]) -> Steps[list[Json]]:
    """Move each (topic, partition) to another log directory. A refusal is its entry's."""
    wanted = [
        {"topic": topic, "partition": number, "log_dir": log_dir}
        for (topic, number), log_dir in moves.items()
    ]
    answer = yield from _post("/v1/partition-moves", {"moves": wanted}, Repeat.ALWAYS)
    return _entries(answer, "moves")


def list_moves() -> Steps[list[Json]]:
    """Moves under way, and the last one of each partition that ended since the start."""
    return _entries((yield from _get("/v1/partition-moves")), "moves")


def cancel_move(topic: str, partition: int) -> Steps[Json]:
    """Give a move up; the partition stays where it is. Raises NotFound when there is none."""
    answer = yield Request("DELETE", path_of("v1", "partition-moves", topic, partition))
    entry: Json = document_of(answer)
    return entry


def archived_offsets(topic: str) -> Steps[list[Json]]:
    """How far each served partition of a topic is archived, with its lag and what is held for it.

    Raises UnknownTopic.
    """
    answer = yield Request("GET", path_of("v1", "topics", topic, "archived-offsets"))
    return _partitions_of(document_of(answer))


def raise_archived_offsets(
    topic: str, offsets: Mapping[int, int], topic_id: str | None = None
) -> Steps[dict[int, int]]:
    """An archive has everything below these offsets of partitions: all or none; what holds now.

    topic_id   of the topic that was archived (`describe_topic`): another one that was made under
               the name meanwhile is UnknownTopic

    Durable when this returns; an offset below the one in force changes nothing. Raises
    UnknownTopic, UnknownPartition, OffsetAboveHighWatermark.
    """
    entries = [{"partition": number, "offset": offset} for number, offset in offsets.items()]
    body: Json = {"partitions": entries}
    if topic_id is not None:
        body["topic_id"] = topic_id
    answer = yield Request(
        "POST",
        path_of("v1", "topics", topic, "archived-offsets:raise"),
        body=json_body(body),
        repeat=Repeat.ALWAYS,
    )
    partitions = _partitions_of(document_of(answer))
    return {each["partition"]: each["archived_offset"] for each in partitions}


def _partitions_of(document: Json) -> list[Json]:
    """The entries of an answer. Raises BadAnswer."""
    entries = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise BadAnswer("The answer has no partitions: it is not the daemon's.")
    return entries


def describe_producers(topic: str, partition: int) -> Steps[list[Json]]:
    """What the log of a partition remembers of its producers, by id.

    ``current_transaction_start_offset`` is where the producer's open transaction begins, or None.
    Raises UnknownTopic, UnknownPartition.
    """
    answer = yield Request("GET", _path(topic, partition, "producers"))
    document = document_of(answer)
    producers = document.get("producers") if isinstance(document, dict) else None
    if not isinstance(producers, list):
        raise BadAnswer("The answer has no producers: it is not the daemon's.")
    return producers


def abort_transaction(topic: str, partition: int, start_offset: int) -> Steps[Json]:
    """Abort the transaction that begins at an offset, which an adopted directory brought along.

    Durable when this returns. Raises UnknownTopic, UnknownPartition, Conflict when none that is
    open begins there, or when it is a sink's.
    """
    answer = yield Request(
        "POST",
        _path(topic, partition, "transactions:abort"),
        body=json_body({"start_offset": start_offset}),
        repeat=Repeat.IF_NOTHING_WAS_DONE,
    )
    aborted: Json = document_of(answer)
    return aborted


def _path(topic: str, partition: int, what: str) -> str:
    return path_of("v1", "topics", topic, "partitions", partition, what)
