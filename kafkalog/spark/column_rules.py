"""Which columns of a data frame are written, in the words of Spark's Kafka sink.

`value` is needed; `key`, `headers`, `topic`, `partition` and `timestamp` may be there; any other
column is passed over, as there. The option ``topic`` is stronger than the column. Types are
compared by their names, so that nothing here needs pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    """The data frame lacks a column, or has one of a wrong type."""


def written_columns(fields: Iterable[tuple[str, str]], topic: str | None) -> tuple[str, ...]:
    """The columns of a data frame that become records.

    fields   name and type of each column, the type as Spark's ``simpleString`` has it
    topic    the option, None when it is not set

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
