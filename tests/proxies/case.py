"""A case of the table: a request of a proxy's client, the answer, and where its fact comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.integration.daemon import BINARY, TEXT, V2

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFLUENT, STRIMZI, REDPANDA, KARAPACE = "confluent", "strimzi", "redpanda", "karapace"
V3 = "v3"
"""Confluent's other API."""

PROXIES = {
    CONFLUENT: "Proxy",
    STRIMZI: "Bridge",
    REDPANDA: "Redpanda",
    KARAPACE: "Karapace",
    V3: "Proxy v3",
}
"""Dialects, by the proxy whose clients speak them."""

_KAFKA_REST = "confluentinc/kafka-rest kafka-rest/src/test/java/io/confluent/kafkarest"
SOURCES = {
    "confluent": f"{_KAFKA_REST}/integration, resources/v2",
    "confluent-v3": f"{_KAFKA_REST}/integration/v3",
    "confluent-code": "confluentinc/kafka-rest kafka-rest/src/main/java/io/confluent/kafkarest",
    "confluent-page": "docs.confluent.io/platform/current/kafka-rest/api.html",
    "confluent-openapi": "confluentinc/kafka-rest api/v3/openapi.yaml",
    "karapace": "Aiven-Open/karapace tests/integration/kafka_rest_apis",
    "karapace-code": "Aiven-Open/karapace src/karapace/kafka_rest_apis, src/karapace/rapu.py",
    "redpanda": "redpanda-data/redpanda tests/rptest/tests/pandaproxy_test.py",
    "redpanda-swagger": "redpanda-data/redpanda src/v/pandaproxy/api/api-doc/rest.json",
    "strimzi": "strimzi/strimzi-kafka-bridge src/test/java/io/strimzi/kafka/bridge/http",
    "strimzi-openapi": "strimzi/strimzi-kafka-bridge src/main/resources/openapi.json",
}
"""The first word of a source: a suite, a page or a file. The other words find the place in it."""

JSON = "application/json"
KAFKA_JSON = "application/vnd.kafka.json.v2+json"

Step = tuple[str, object]
"""A request that must succeed before, as ``METHOD path``, and its body."""


@dataclass(frozen=True)
class Case:
    """Request, bodies and shapes may hold ``{c}``, the path of the cluster, ``{i}``, that of a
    consumer instance made for the case, and ``{t}``, a topic of two partitions made for it.

    name      tells it from all others, in words
    dialect   whose client asks so
    request   ``METHOD path``
    wanted    a shape (``fits``) of the answer's body; a number is its error_code; None: no body
    source    see SOURCES
    body      bytes, or a value that is sent as JSON
    type      Content-Type
    there     how the dialect's proxy answers, where that is not how kafkalog does
    differs   the row of docs/reference/http-proxies.md that says why
    media     Content-Type of the answer
    given     requests before
    consumer  configs of the consumer beside those of its dialect (CONSUMERS)
    """

    name: str
    dialect: str
    request: str
    status: int
    wanted: object
    source: str
    body: object = None
    type: str = ""
    accept: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    there: str = ""
    differs: str = ""
    media: str = ""
    given: tuple[Step, ...] = ()
    consumer: Mapping[str, object] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """Of the request."""
        return self.request.partition(" ")[0]

    @property
    def path(self) -> str:
        """Of the request."""
        return self.request.partition(" ")[2]

    @property
    def answer(self) -> str:
        """Status, and the error's number, as pages have it."""
        wanted = self.wanted
        number = wanted.get("error_code") if isinstance(wanted, dict) else wanted
        is_number = isinstance(number, int) and self.status >= 400
        return f"{self.status}/{number}" if is_number else f"{self.status}"


CONSUMERS: dict[str, dict[str, object]] = {
    CONFLUENT: {"auto.offset.reset": "earliest", "auto.commit.enable": "false"},
    REDPANDA: {
        "format": "binary",
        "auto.offset.reset": "earliest",
        "auto.commit.enable": "false",
        "fetch.min.bytes": "1",
        "consumer.request.timeout.ms": "10000",
    },
    STRIMZI: {"format": "json", "auto.offset.reset": "earliest", "enable.auto.commit": False},
    KARAPACE: {
        "format": "binary",
        "auto.offset.reset": "earliest",
        "consumer.request.timeout.ms": 11000,
        "fetch.min.bytes": 100000,
        "auto.commit.enable": "true",
        "topic.metadata.refresh.interval.ms": 100,
    },
}
"""What each proxy's own tests create a consumer with."""


def fits(wanted: object, value: object) -> bool:
    """A type, a dictionary of some members, a list of all elements, a set of some, or the value."""
    match wanted:
        case type():
            return isinstance(value, wanted)
        case dict():
            return isinstance(value, dict) and all(
                name in value and fits(each, value[name]) for name, each in wanted.items()
            )
        case list():
            return (
                isinstance(value, list)
                and len(value) == len(wanted)
                and all(map(fits, wanted, value))
            )
        case frozenset():
            return isinstance(value, list) and wanted <= set(value)
    return wanted == value


def records(*values: object, **common: object) -> dict[str, object]:
    """The body of a produce."""
    return {"records": [{"value": value, **common} for value in values]}


def of(*topics: str) -> Step:
    """The consumer reads topics."""
    return ("POST {i}/subscription", {"topics": list(topics)})


def at(topic: str, partition: int = 0, **more: object) -> dict[str, object]:
    """A partition, as bodies name it."""
    return {"topic": topic, "partition": partition, **more}


def by_hand(*places: dict[str, object]) -> Step:
    """The consumer reads these partitions."""
    return ("POST {i}/assignments", {"partitions": list(places)})


RECEIPT = {"partition": int, "offset": int, "error_code": None, "error": None}
RECEIPTS = {"offsets": [RECEIPT], "key_schema_id": None, "value_schema_id": None}

__all__ = ["BINARY", "TEXT", "V2"]
