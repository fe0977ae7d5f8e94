"""The options of ``df.write`` and ``df.writeStream``, and the columns that are written.

Options of Kafka's producer (``kafka.*``) that have a meaning here are used unless the sink's own
option is given; the others are ignored and listed. Column `value` is required; `key`, `headers`,
`topic`, `partition` and `timestamp` are optional; other columns are ignored. Option ``topic``
has precedence over the column. Columns, types and messages are those of Spark's Kafka sink. Types
are compared by name, so that nothing here needs pyspark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafkalog.errors import InvalidRequest
from kafkalog.format.disk.sink_state import query_name_fault
from kafkalog.format.records.record_batch import Codec
from kafkalog.spark.option_values import InvalidOption, OptionValues
from kafkalog.spark.options import ACCESS_OPTIONS, access_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafkalog.client.records import Acks
    from kafkalog.spark.logs.values import Access


BATCH_BYTES = 900_000
"""Size of a batch before compression: below the default max.message.bytes."""

DELIVERY_MS = 120_000
"""Time of the retries of a batch, as in Kafka's producer (delivery.timeout.ms)."""

BLOCK_BATCHES = 16
"""Batches built at once: many, so that the batches of many partitions are large as well."""

_BATCH_BYTES_MIN, _BATCH_BYTES_MAX = 1024, 64 << 20
SINK_OPTIONS = ("topic", "exactlyOnce", "compression", "acks", "batchBytes", "deliveryTimeout")
BATCH_OPTIONS = ("query", "batchId")
# Set by Spark itself, or for Kafka's sink, where includeHeaders does not change what is written.
_WITHOUT_EFFECT = ("checkpointLocation", "queryName", "includeHeaders")
_OF_KAFKA = {
    "compression": "kafka.compression.type",
    "acks": "kafka.acks",
    "deliveryTimeout": "kafka.delivery.timeout.ms",
}
_ACKS: dict[str, Acks] = {"all": "all", "-1": "all", "1": "1"}
_CODECS = {codec.name.lower(): codec for codec in Codec}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Checked options. Pickled with every task.

    access        one daemon, and the time of the retries of a batch
    topic         topic of every record; None: column `topic` names it
    batch_bytes   size of a batch before compression
    ignored       names of options without effect, for a warning
    named_batch   query and batch id of a ``df.write`` that may be repeated; None: a unique name
    """

    access: Access
    topic: str | None = None
    is_exactly_once: bool = False
    codec: Codec = Codec.NONE
    acks: Acks = "all"
    batch_bytes: int = BATCH_BYTES
    ignored: tuple[str, ...] = ()
    named_batch: tuple[str, int] | None = None

    @property
    def block_bytes(self) -> int:
        """Bytes of Arrow from which a task builds batches at once."""
        return BLOCK_BATCHES * self.batch_bytes


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """The options of a sink. Raises InvalidOption."""
    known = (*ACCESS_OPTIONS, *SINK_OPTIONS, *BATCH_OPTIONS, *_WITHOUT_EFFECT)
    values = OptionValues(options, known)
    names = {own: _name(values, own) for own in SINK_OPTIONS}
    is_exactly_once = values.boolean("exactlyOnce", default=False)
    acks = _ACKS[values.word(names["acks"], "all", tuple(_ACKS))]
    if is_exactly_once and acks != "all":
        raise InvalidOption(f"Option {names['acks']} must be all when exactlyOnce is true")
    return SinkOptions(
        _access(values, values.duration_ms(names["deliveryTimeout"], DELIVERY_MS)),
        values.text("topic"),
        is_exactly_once,
        _CODECS[values.word(names["compression"], "none", tuple(_CODECS))],
        acks,
        values.size_bytes("batchBytes", BATCH_BYTES, _BATCH_BYTES_MIN, _BATCH_BYTES_MAX),
        tuple(name for name in values.of_kafka() if name not in names.values()),
        _named_batch(values, is_exactly_once=is_exactly_once),
    )


def _named_batch(values: OptionValues, *, is_exactly_once: bool) -> tuple[str, int] | None:
    given = values.given(BATCH_OPTIONS)
    if not given:
        return None
    query, batch_id = values.text("query"), values.integer("batchId", 0)
    if query is None or batch_id is None:
        raise InvalidOption(f"Option {given[0]} needs the other one: options query and batchId")
    if not is_exactly_once:
        raise InvalidOption("Options query and batchId need exactlyOnce true")
    fault = query_name_fault(query)
    if fault is not None:
        raise InvalidOption(f"Option query is '{query[:200]}'. {fault}")
    return query, batch_id


def _name(values: OptionValues, own: str) -> str:
    """The name under which an option was given: the sink's own, or Kafka's."""
    of_kafka = _OF_KAFKA.get(own, own)
    return of_kafka if own not in values and of_kafka in values else own


def _access(values: OptionValues, delivery_ms: int) -> Access:
    if "path" in values:
        raise InvalidOption(
            "Option path is for reading: records are written through a daemon, give option url"
        )
    access = access_of(values)
    if len(access.urls) > 1:
        raise InvalidOption("Option url names several daemons, but a sink writes to one")
    return replace(access, retry_seconds=delivery_ms / 1000)


VALUE, TOPIC = "value", "topic"
_TEXT = ("string", "binary")
_TYPES = {
    TOPIC: ("string",),
    "key": _TEXT,
    VALUE: _TEXT,
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}


class UnusableSchema(InvalidRequest):
    """The data frame lacks a column, or a column has a wrong type."""


def written_columns(fields: Iterable[tuple[str, str]], topic: str | None) -> tuple[str, ...]:
    """The columns of a data frame that become records.

    fields   name and type of each column, the type in the form of Spark's ``simpleString``
    topic    the option; None: not given

    Raises UnusableSchema.
    """
    types: dict[str, str] = {}
    for name, kind in fields:
        if name in types and name in _TYPES:
            raise UnusableSchema(f"There are several columns '{name}'.")
        types[name] = kind
    wanted = [name for name in _TYPES if name != TOPIC or topic is None]
    if topic is None and TOPIC not in types:
        raise UnusableSchema(
            f"topic option required when no '{TOPIC}' attribute is present. "
            "Use the topic option for setting a topic."
        )
    if VALUE not in types:
        raise UnusableSchema(f"Required attribute '{VALUE}' not found")
    for name in wanted:
        if name in types and types[name] not in _TYPES[name]:
            raise UnusableSchema(
                f"{name} attribute unsupported type {types[name]}. "
                f"{name} must be a(n) {' or '.join(_TYPES[name])}"
            )
    return tuple(name for name in wanted if name in types)
