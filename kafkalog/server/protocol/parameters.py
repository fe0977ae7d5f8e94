"""Path and query parameters: strings in, bounded values out.

A query parameter is declared once, as an object that reads the request and has the schema: what the
handler accepts and what ``/openapi.json`` says cannot differ. Timestamps are refused with the name
of their parameter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from kafkalog.broker.operations import Acks
from kafkalog.errors import InvalidRequest, InvalidTopicName
from kafkalog.format.disk.group_offsets import name_fault
from kafkalog.format.disk.sink_state import query_name_fault
from kafkalog.format.integers import INT32_MAX, INT64_MAX
from kafkalog.format.suggestions import did_you_mean
from kafkalog.format.timestamps import is_before_1970, timestamp_ms
from kafkalog.format.topic_names import topic_name_fault
from kafkalog.log.values import Isolation
from kafkalog.server.protocol.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aiohttp import web


T = TypeVar("T")

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_SHOWN_CHARACTERS = 80
# A time as text: ms since 1970 or ISO-8601 with a zone.
TIME_SCHEMA: dict[str, object] = {
    "anyOf": [
        {"type": "string", "pattern": "^[0-9]{1,18}$"},
        {"type": "string", "format": "date-time"},
    ]
}
TOPIC_NAME_PATTERN = (
    r"([a-zA-Z0-9_-][a-zA-Z0-9._-]*|\.[a-zA-Z0-9_-][a-zA-Z0-9._-]*|\.\.[a-zA-Z0-9._-]+)"
)
TOPIC_NAME_SCHEMA: dict[str, object] = {
    "type": "string",
    "pattern": f"^{TOPIC_NAME_PATTERN}$",
    "minLength": 1,
    "maxLength": 249,
}
NO_PARTITION = "A partition is a number from 0 to 2147483647."


def topic_of(request: web.Request) -> str:
    """The topic in the path, checked after decoding: no separators, no dots alone, no NUL."""
    return checked_topic(request.match_info["topic"])


def checked_topic(name: str) -> str:
    """A name that a topic may have, wherever it stands; InvalidTopicName."""
    fault = topic_name_fault(name)
    if fault is not None:
        raise InvalidTopicName(fault)
    return name


def partition_of(request: web.Request) -> int:
    """The partition in the path; what is no int32 >= 0 is 404, as in the Kafka REST ecosystem."""
    number = partition_number(request.match_info["partition"])
    if number is None:
        raise ApiError(404, NO_PARTITION)
    return number


def partition_number(text: str) -> int | None:
    """The number of a partition, if the text is one: an int32 >= 0 in digits."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= INT32_MAX):
        return None
    return int(text)


def group_of(request: web.Request) -> str:
    """The group in the path: any text without control characters that a commit can hold."""
    return _checked_name(request.match_info["group"], "group")


def instance_of(request: web.Request, name: str = "instance") -> str:
    """The consumer instance in the path, which ``name`` is a part of; as a group's name."""
    return _checked_name(request.match_info[name], "consumer")


def _checked_name(name: str, of: str) -> str:
    fault = name_fault(name)
    if fault is not None:
        raise InvalidRequest(f"The name of the {of} {fault}")
    return name


def sink_of(request: web.Request) -> str:
    """The query in the path, named as a topic may be."""
    name = request.match_info["sink"]
    fault = query_name_fault(name)
    if fault is not None:
        raise InvalidRequest(fault)
    return name


def base_offset_of(request: web.Request) -> int:
    """The base offset in the path; what is no int64 >= 0 is 404, as there is no such segment."""
    return _int64_of(request, "base_offset", "A segment is named by its base offset.")


def producer_id_of(request: web.Request) -> int:
    """The producer id in the path; what is no int64 >= 0 is 404, as there is no such producer."""
    return _int64_of(request, "producer_id", "A producer is named by its id.")


def _int64_of(request: web.Request, name: str, otherwise: str) -> int:
    """A part of the path that is an int64 >= 0; otherwise ApiError 404."""
    text = request.match_info[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= INT64_MAX):
        raise ApiError(404, otherwise)
    return int(text)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter as the API's description sees it."""

    name: str
    description: str

    @property
    def is_required(self) -> bool:
        """Whether leaving it out is an error."""
        return False

    @property
    def schema(self) -> Mapping[str, object]:
        """JSON Schema of its value."""
        return {"type": "string"}


@dataclass(frozen=True, slots=True)
class IntegerParameter(Parameter):
    """A whole number; without default it is required. ApiError 40005.

    A default outside the bounds means that the parameter is absent; no request can send it.
    """

    default: int | None = None
    least: int = 0
    most: int = INT64_MAX
    advice: str = ""  # what else a wrong value may have meant

    @property
    def is_required(self) -> bool:
        """See Parameter."""
        return self.default is None

    @property
    def schema(self) -> Mapping[str, object]:
        """See Parameter."""
        schema: dict[str, object] = {
            "type": "integer",
            "format": "int64",
            "minimum": self.least,
            "maximum": self.most,
        }
        if self.default is not None and self.least <= self.default <= self.most:
            schema["default"] = self.default
        return schema

    def read(self, request: web.Request) -> int:
        """The number of the request, or the default."""
        text = request.query.get(self.name)
        if text is None:
            if self.default is not None:
                return self.default
            raise wrong_parameter(self.name, f"Query parameter '{self.name}' is required.")
        if not _INTEGER.fullmatch(text) or not self.least <= int(text) <= self.most:
            raise wrong_parameter(
                self.name,
                f"Query parameter '{self.name}' must be a number from {self.least} to {self.most}."
                f"{self.advice}",
            )
        return int(text)

    def read_or_none(self, request: web.Request) -> int | None:
        """The number of the request; None if it is absent, of a default that nobody can send."""
        number = self.read(request)
        return None if number == self.default else number


@dataclass(frozen=True, slots=True)
class FlagParameter(Parameter):
    """true or false; absent is false. ApiError 40005."""

    @property
    def schema(self) -> Mapping[str, object]:
        """See Parameter."""
        return {"type": "boolean", "default": False}

    def read(self, request: web.Request) -> bool:
        """Whether it is set."""
        text = request.query.get(self.name, "false").lower()
        if text not in ("true", "false"):
            raise wrong_parameter(
                self.name, f"Query parameter '{self.name}' must be true or false."
            )
        return text == "true"


@dataclass(frozen=True, slots=True)
class ChoiceParameter(Parameter, Generic[T]):
    """One of some words. ``header`` may carry the same words when the query has none."""

    choices: Mapping[str, T]
    default: T
    header: str = ""

    @property
    def schema(self) -> Mapping[str, object]:
        """See Parameter."""
        return {"type": "string", "enum": list(self.choices)}

    def read(self, request: web.Request) -> T:
        """The value of the word, or the default. ApiError 40005."""
        text = request.query.get(self.name)
        if text is None and self.header:
            text = request.headers.get(self.header)
        if text is None:
            return self.default
        found = self.choices.get(text.strip().lower())
        if found is None:
            words = list(self.choices)
            listed = f"{', '.join(words[:-1])} or {words[-1]}"
            raise wrong_parameter(self.name, f"{self.name} must be {listed}.")
        return found


@dataclass(frozen=True, slots=True)
class TextParameter(Parameter):
    """Any text; what it means is the route's."""

    default: str | None = None
    schema: Mapping[str, object] = field(default_factory=lambda: {"type": "string"})

    def read(self, request: web.Request) -> str | None:
        """As sent."""
        return request.query.get(self.name, self.default)


@dataclass(frozen=True, slots=True)
class TimeParameter(Parameter):
    """A time: ms since 1970 or ISO-8601. ApiError 40005."""

    @property
    def schema(self) -> Mapping[str, object]:
        """See Parameter."""
        return TIME_SCHEMA

    def read(self, request: web.Request) -> int | None:
        """In ms; None when it is absent."""
        text = request.query.get(self.name)
        return None if text is None else parse_timestamp(text, self.name)


@dataclass(frozen=True, slots=True)
class ListParameter(Parameter):
    """Texts with commas between them, or in a parameter each; empty ones do not count."""

    def read(self, request: web.Request) -> list[str]:
        """As sent, in order; none when it is absent."""
        lists = request.query.getall(self.name, [])
        return [text for texts in lists for text in texts.split(",") if text]


@dataclass(frozen=True, slots=True)
class TopicsParameter(ListParameter):
    """Names of topics, in the form of a list; InvalidTopicName."""

    @property
    def schema(self) -> Mapping[str, object]:
        """See Parameter."""
        one = f" *{TOPIC_NAME_PATTERN}? *"
        return {"type": "string", "pattern": f"^{one}(,{one})*$"}

    def read(self, request: web.Request) -> list[str]:
        """See ListParameter; spaces around a name do not count."""
        named = (name.strip(" ") for name in ListParameter.read(self, request))
        return [checked_topic(name) for name in named if name]


def check_query(request: web.Request, parameters: Sequence[Parameter]) -> None:
    """Refuse an unknown name and a second value. ApiError 40005.

    A parameter that is passed by answers another question than the one that was asked.
    """
    known = {each.name: each for each in parameters}
    for name in request.query:
        parameter = known.get(name)
        if parameter is None:
            shown = name[:_SHOWN_CHARACTERS]
            raise wrong_parameter(
                shown,
                f"There is no query parameter '{shown}' here{did_you_mean(shown, known)}; "
                f"there is {', '.join(known) or 'none'}.",
            )
        is_repeated = len(request.query.getall(name)) > 1
        if is_repeated and not isinstance(parameter, ListParameter):
            raise wrong_parameter(name, f"Query parameter '{name}' is given more than once.")


def refuse_several(request: web.Request, *choices: Parameter) -> None:
    """ApiError 40005 when more than one of them is given: they exclude each other."""
    named = [each.name for each in choices if each.name in request.query]
    if len(named) > 1:
        allowed = ", ".join(each.name for each in choices)
        raise wrong_parameter(named[1], f"Give one of {allowed}.")


def wrong_parameter(name: str, message: str) -> ApiError:
    """40005, with the parameter's name."""
    return ApiError(40005, message, details={"parameter": name})


ACKS: ChoiceParameter[Acks | None] = ChoiceParameter(
    "acks",
    "When the answer comes: all (synced), 1 (written) or 0 (at once); else the topic's, else the "
    "broker's default. The header Kafka-Acks says the same.",
    {"all": Acks.ALL, "-1": Acks.ALL, "1": Acks.LEADER, "0": Acks.NONE},
    None,
    header="Kafka-Acks",
)
EXPECTED_OFFSET = IntegerParameter(
    "expected_offset", "Append only when this is the log end offset.", -1
)
FLUSH = FlagParameter("flush", "As acks=all.")


def acks_of(request: web.Request) -> Acks | None:
    """The durability class of ACKS or FLUSH; None: the default. ApiError 40005."""
    acks = ACKS.read(request)
    return Acks.ALL if FLUSH.read(request) else acks


ISOLATION: ChoiceParameter[Isolation] = ChoiceParameter(
    "isolation",
    "read_committed leaves out aborted transactions and ends at the last stable offset.",
    {"read_uncommitted": Isolation.HIGH_WATERMARK, "read_committed": Isolation.LAST_STABLE},
    Isolation.HIGH_WATERMARK,
)


def parse_timestamp(text: str, name: str = "timestamp", others: Iterable[str] = ()) -> int:
    """Milliseconds; ApiError 40005 with the name of what held the text, and what else it may be."""
    value = timestamp_ms(text)
    if value is None and is_before_1970(text):
        raise wrong_parameter(name, f"{name} is before 1970, where timestamps begin.")
    if value is None:
        kinds = ", ".join((*others, "milliseconds since 1970 or ISO-8601 with a zone"))
        raise wrong_parameter(name, f"{name} is {kinds}, as 2026-01-31T12:00:00Z.")
    return value
