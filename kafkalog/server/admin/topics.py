"""v2 metadata, ``POST /admin/topics``, ``GET /v1/info`` and ``/v1/configs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from aiohttp import hdrs, web

from kafkalog import __version__
from kafkalog.broker.groups.consumers import Dialect
from kafkalog.broker.values import ListedPartition
from kafkalog.errors import InvalidRequest, KafkalogError, UnknownTopic
from kafkalog.format.topic_names import is_internal
from kafkalog.server.api import api_of
from kafkalog.server.protocol.endpoint import CONSOLE_PREFIX, Access, Answer, Link, Routes, in_v2
from kafkalog.server.protocol.errors import ApiError, error_of, v3_fault
from kafkalog.server.protocol.json_schema import AnswerBody, NamedType, answer_of
from kafkalog.server.protocol.media_types import HTML, JSON, parse_accept
from kafkalog.server.protocol.parameters import FlagParameter, TextParameter, partition_of, topic_of
from kafkalog.server.protocol.schemas import AdminTopic
from kafkalog.server.security.audit import note_subject

if TYPE_CHECKING:
    from kafkalog.broker.values import ConfigEntry, TopicDescription


ROUTES = Routes("metadata", errors=(406,), is_v2=True)
INFO_ROUTES = Routes("operation")
INCLUDE_INTERNAL = FlagParameter(
    "include_internal", "List internal topics such as __consumer_offsets too."
)
_NO_LEADER = -1  # as Kafka has it
_ABOUT_IT = tuple(
    Link(operation_id, {"topic": "$request.body#/topic_name"})
    for operation_id in ("describeTopic", "describePartitions", "produce")
)


class About(AnswerBody):
    """Who answers; ``bridge_version`` is what the Bridge's clients read."""

    bridge_version: str
    name: str
    version: str


class EmptyObject(AnswerBody):
    """An empty object."""


class BrokerIds(AnswerBody):
    """Node ids: one."""

    brokers: list[int]


TopicNames = NamedType("TopicNames", list[str], "Sorted.")


class Replica(AnswerBody):
    """The one replica of a partition."""

    broker: int
    leader: bool
    in_sync: bool


class TopicPartitionAnswer(AnswerBody, kw_only=True):
    """A partition; one that is not served has leader -1 and its error."""

    partition: int
    leader: int
    replicas: list[Replica]
    error_code: int | None = None
    kafka_error: str | None = None
    error: str | None = None


TopicPartitions = NamedType("TopicPartitions", list[TopicPartitionAnswer], "By number.")


class TopicAnswer(AnswerBody):
    """A topic with its effective configs as text."""

    name: str
    configs: dict[str, str]
    partitions: list[TopicPartitionAnswer]


class OffsetRange(AnswerBody):
    """Log start offset and high watermark."""

    beginning_offset: int
    end_offset: int


def _partition(broker_id: int, listed: ListedPartition) -> TopicPartitionAnswer:
    """One replica, which leads and is in sync: this is a single node. Not served: no leader."""
    is_served = listed.fault is None
    return answer_of(
        TopicPartitionAnswer,
        listed.fault and error_of(listed.fault),
        partition=listed.partition,
        leader=broker_id if is_served else _NO_LEADER,
        replicas=[Replica(broker_id, leader=is_served, in_sync=is_served)],
    )


def listed_partitions(topic: TopicDescription) -> list[ListedPartition]:
    """All of a topic, with the faults of those that are not served."""
    return [
        ListedPartition(topic.name, number, topic.faults.get(number))
        for number in range(topic.partition_count)
    ]


def partition_in_path(request: web.Request) -> ListedPartition:
    """The one in the path, also when it is not served. UnknownTopic, UnknownPartition."""
    topic, number = topic_of(request), partition_of(request)
    try:
        api_of(request).operations.partition_log(topic, number)
    except InvalidRequest:
        raise  # there is none
    except KafkalogError as fault:
        return ListedPartition(topic, number, fault)
    return ListedPartition(topic, number, None)


HAS_CONSOLE: web.AppKey[bool] = web.AppKey("has_console")


@ROUTES.endpoint(
    "GET /",
    "about",
    Access.OPEN,
    {
        200: Answer("Name and version.", in_v2(About)),
        302: Answer("A browser's way to the console.", headers=(hdrs.LOCATION,)),
    },
)
async def root(request: web.Request) -> web.Response | About:
    """Who answers here; the Bridge's clients read bridge_version.

    A client that wants HTML before all else is sent to the console, where this port has it.
    """
    wanted = parse_accept(request.headers.get(hdrs.ACCEPT, ""))
    if request.app[HAS_CONSOLE] and wanted[:1] == [HTML]:
        # Relative: a prefix that a proxy takes away in front stays.
        headers = {hdrs.LOCATION: CONSOLE_PREFIX.lstrip("/"), hdrs.VARY: "Accept"}
        return web.Response(status=302, headers=headers)
    return About("1.2.0", "kafkalog", __version__)


@ROUTES.endpoint("POST /", "nothing", Access.OPEN, "It answers.")
async def nothing(request: web.Request) -> EmptyObject:
    """The REST Proxy's sign of life; the body is not read."""
    return EmptyObject()


@ROUTES.endpoint("GET /brokers", "listBrokerIds", Access.AUTHENTICATED, "One.")
async def brokers(request: web.Request) -> BrokerIds:
    """The one node."""
    return BrokerIds([api_of(request).operations.node_id])


def names_asked_for(request: web.Request) -> list[str]:
    """Topics of a list, sorted; INCLUDE_INTERNAL says which. ApiError 40005."""
    with_internal = INCLUDE_INTERNAL.read(request)
    names = api_of(request).operations.topic_names()
    return names if with_internal else [name for name in names if not is_internal(name)]


@ROUTES.endpoint(
    "GET /topics",
    "listTopicNames",
    Access.DESCRIBE_TOPIC,
    Answer("Names.", in_v2(TopicNames)),
    parameters=(INCLUDE_INTERNAL,),
)
async def topics(request: web.Request) -> list[str]:
    """Names of all topics, as Kafka's AdminClient lists them: internal ones if asked for."""
    return names_asked_for(request)


@ROUTES.endpoint(
    "GET /topics/{topic}", "describeTopic", Access.DESCRIBE_TOPIC, "The topic.", errors=(40403,)
)
async def topic(request: web.Request) -> TopicAnswer:
    """Name, effective configs as strings, partitions."""
    api = api_of(request)
    operations = api.operations
    try:
        description = operations.topics.describe(topic_of(request))
    except UnknownTopic as error:
        if api.config.http_v2_dialect == Dialect.KARAPACE.value:
            raise v3_fault(error) from error  # 40403 on this route alone
        raise
    configs = {entry.name: entry.value for entry in description.configs if entry.value is not None}
    partitions = [_partition(operations.node_id, each) for each in listed_partitions(description)]
    return TopicAnswer(description.name, configs, partitions)


@ROUTES.endpoint(
    "GET /topics/{topic}/partitions",
    "describePartitions",
    Access.DESCRIBE_TOPIC,
    Answer("By number.", in_v2(TopicPartitions)),
)
async def partitions(request: web.Request) -> list[TopicPartitionAnswer]:
    """All partitions of a topic."""
    operations = api_of(request).operations
    description = operations.topics.describe(topic_of(request))
    return [_partition(operations.node_id, each) for each in listed_partitions(description)]


@ROUTES.endpoint(
    "GET /topics/{topic}/partitions/{partition}",
    "describePartition",
    Access.DESCRIBE_TOPIC,
    "The partition.",
)
async def partition(request: web.Request) -> TopicPartitionAnswer:
    """One partition, also one that is not served."""
    return _partition(api_of(request).operations.node_id, partition_in_path(request))


@ROUTES.endpoint(
    "GET /topics/{topic}/partitions/{partition}/offsets",
    "getOffsetRange",
    Access.DESCRIBE_TOPIC,
    "Where the log begins and ends.",
)
async def offsets(request: web.Request) -> OffsetRange:
    """Log start offset and the next offset a reader has not seen (the high watermark)."""
    log = api_of(request).operations.partition_log(topic_of(request), partition_of(request))
    return OffsetRange(log.log_start_offset, log.high_watermark)


@ROUTES.endpoint(
    "POST /admin/topics",
    "createTopicAsBridge",
    Access.CREATE_TOPIC,
    {201: Answer("Made, durable.", in_v2(EmptyObject), links=_ABOUT_IT)},
    tag="topics",
    body={JSON: AdminTopic},
    errors=(40002, 40904, 50302, 50303, 50701),
)
async def create_topic(request: web.Request, wanted: AdminTopic) -> EmptyObject:
    """The Bridge's topic creation: 201 ``{}``; an existing topic is 409/40904."""
    api = api_of(request)
    note_subject(request, topic=wanted.topic_name, partition_count=wanted.partitions_count)
    if wanted.replication_factor not in (None, 1, -1):
        raise ApiError(40002, "Only replication_factor 1 is possible: there is one node.")
    await api.blocking(
        api.operations.topics.create, wanted.topic_name, wanted.partitions_count, wanted.configs
    )
    return EmptyObject()


_EXPLAIN = TextParameter("explain", "Only the config of this name.")
_LIMITS = (
    "socket_request_max_bytes",
    "queued_max_request_bytes",
    "max_decompressed_batch_bytes",
    "max_connections",
    "http_max_inflight_requests",
    "http_max_streams",
    "http_max_records",
    "http_max_batch_entries",
    "http_max_wait_ms",
    "http_max_fetch_bytes",
)
# Features that not every version has.
_FEATURES = (
    "acks",
    "backup",
    "delete-records",
    "expected-offset",
    "idempotent-produce",
    "kafka-rest-v2",
    "kafka-rest-v3",
    "list-offsets",
    "pages",
    "produce-streams",
    "raw-batches",
    "respond-async",
)


class InfoAnswer(AnswerBody):
    """What runs here. ``limits`` by setting, in its unit."""

    name: str
    version: str
    cluster_id: str
    node_id: int
    phase: Literal["starting", "serving", "stopping"]
    listeners: dict[str, str]
    limits: dict[str, int]
    features: list[str]


@INFO_ROUTES.endpoint(
    "GET /v1/info", "info", Access.DESCRIBE_CLUSTER, Answer("Who runs here.", InfoAnswer)
)
async def info(request: web.Request) -> InfoAnswer:
    """Version, cluster, listeners, limits and features."""
    api = api_of(request)
    config = api.config
    return InfoAnswer(
        name="kafkalog",
        version=__version__,
        cluster_id=api.cluster_id,
        node_id=api.operations.node_id,
        phase=api.state.phase.value,
        listeners={"http": f"http://{config.http_host}:{config.http_port}"},
        limits={name.replace("_", "."): getattr(config, name) for name in _LIMITS},
        features=list(_FEATURES),
    )


class ConfigSource(AnswerBody):
    """One link of a chain of sources."""

    name: str
    value: str | None
    source: str


class ExplainedConfig(ConfigSource):
    """An effective config; ``synonyms`` strongest first."""

    is_default: bool
    is_read_only: bool
    synonyms: list[ConfigSource]


class ConfigsAnswer(AnswerBody):
    """By name."""

    configs: list[ExplainedConfig]


@INFO_ROUTES.endpoint(
    "GET /v1/configs",
    "explainConfigs",
    Access.DESCRIBE_CLUSTER,
    Answer("By name.", ConfigsAnswer),
    parameters=(_EXPLAIN,),
    errors=(404,),
)
async def configs(request: web.Request) -> ConfigsAnswer:
    """The effective configs of the daemon, each with its chain of sources."""
    name = _EXPLAIN.read(request)
    entries = api_of(request).operations.describe_broker_configs()
    chosen = [_explained(entry) for entry in entries if name in (None, entry.name)]
    if not chosen:
        raise ApiError(404, "No config of that name; GET /v1/configs lists them.")
    return ConfigsAnswer(chosen)


def _explained(entry: ConfigEntry) -> ExplainedConfig:
    synonyms = [answer_of(ConfigSource, each) for each in entry.synonyms]
    return answer_of(ExplainedConfig, entry, synonyms=synonyms)
