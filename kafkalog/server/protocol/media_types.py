"""Content-Type and Accept: embedded formats of v2, aliases, q-values, the formats of metrics."""

from __future__ import annotations

import enum
import functools
from typing import TYPE_CHECKING, TypeVar

from kafkalog.observe.exposition import Exposition
from kafkalog.server.protocol.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

V2_JSON = "application/vnd.kafka.v2+json"
RECORD_BATCHES = "application/vnd.kafkalog.record-batches"
OCTET_STREAM = "application/octet-stream"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
TEXT = "text/plain"
JSON = "application/json"
HTML = "text/html"
FORM = "application/x-www-form-urlencoded"
EVENT_STREAM = "text/event-stream"


class EmbeddedFormat(enum.Enum):
    """The formats of keys and values in JSON."""

    BINARY = "binary"  # base64
    JSON = "json"  # any JSON value, its text is the bytes
    TEXT = "text"  # UTF-8 string, stored without quotes

    __hash__ = object.__hash__  # enum's is a Python statement of its own, for each request


_EMBEDDED = {
    "application/vnd.kafka.binary.v2+json": EmbeddedFormat.BINARY,
    "application/vnd.kafka.json.v2+json": EmbeddedFormat.JSON,
    "application/vnd.kafka.text.v2+json": EmbeddedFormat.TEXT,
    "application/vnd.kafka.binary.v1+json": EmbeddedFormat.BINARY,
    "application/vnd.kafka.json.v1+json": EmbeddedFormat.JSON,
    "application/vnd.kafka.v1+json": EmbeddedFormat.BINARY,
    "application/vnd.kafka+json": EmbeddedFormat.BINARY,
    "application/vnd.kafka.binary+json": EmbeddedFormat.BINARY,
    "application/vnd.kafka.json+json": EmbeddedFormat.JSON,
    JSON: EmbeddedFormat.JSON,
}
EMBEDDED_TYPES = tuple(name for name in _EMBEDDED if ".v2+" in name)
_SCHEMA_FORMATS = ("avro", "jsonschema", "protobuf")
_UTF_8 = ("utf-8", "utf8", "us-ascii")
_LATIN_1 = ("iso-8859-1", "iso8859-1", "iso_8859-1", "latin-1", "latin1", "l1")
_NEUTRAL = {"*/*", "application/*", JSON, V2_JSON}


def _bare(header: str) -> tuple[str, dict[str, str]]:
    """Media type in lower case and its parameters."""
    media_type, *parameters = header.split(";")
    values = {}
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        values[name.strip().lower()] = value.strip().strip('"')
    return media_type.strip().lower(), values


def bare_type(header: str) -> str:
    """The media type of a header without its parameters."""
    return _bare(header)[0]


@functools.lru_cache(maxsize=256)
def check_charset(content_type: str) -> None:
    """415 for a charset of JSON that is not UTF-8: read as UTF-8 it would be other text."""
    charset = _bare(content_type)[1].get("charset", "utf-8").lower()
    if charset in _UTF_8:
        return
    said = "ISO-8859-1 is not decoded: send" if charset in _LATIN_1 else "The body must be"
    raise ApiError(415, f"{said} UTF-8, and leave charset out or set it to utf-8.")


@functools.lru_cache(maxsize=256)
def produce_format(content_type: str) -> EmbeddedFormat:
    """The embedded format of a produce body; 415 names the accepted types."""
    media_type = _bare(content_type)[0]
    check_charset(content_type)
    found = _EMBEDDED.get(media_type)
    if found is not None:
        return found
    if any(name in media_type for name in _SCHEMA_FORMATS):
        raise ApiError(
            415, "That format needs a schema registry; kafkalog has none. Use binary or json."
        )
    # Header bytes are the client's and may be no UTF-8: they are never echoed.
    said = "This Content-Type is not accepted" if media_type else "Content-Type is missing"
    raise ApiError(415, f"{said}. Send one of: {', '.join(EMBEDDED_TYPES)}, {JSON}.")


@functools.lru_cache(maxsize=256)
def is_json(content_type: str) -> bool:
    """Whether it is JSON, by its own type or by the suffix of another (RFC 6839)."""
    media_type = _bare(content_type)[0]
    return media_type == JSON or (
        media_type.startswith("application/") and media_type.endswith("+json")
    )


def parse_accept(accept: str) -> list[str]:
    """Media types of an Accept header, most wanted first; those with q=0 left out."""
    wanted: list[tuple[float, int, str]] = []
    for index, part in enumerate(accept.split(",")):
        media_type, parameters = _bare(part)
        quality = _quality(parameters)
        if media_type and quality > 0:
            wanted.append((-quality, index, media_type))
    return [media_type for _, _, media_type in sorted(wanted)]


@functools.lru_cache(maxsize=256)
def negotiate(accept: str, offered: tuple[str, ...]) -> str:
    """The offered media type that Accept prefers; 406 when it accepts none.

    The most specific range that matches a type decides its quality (RFC 9110, 12.5.1); of equal
    ones the more specific range wins, then the client's order, then ours.
    """
    best, best_rank = "", (0.0, 0, 0)
    for name in offered:
        quality, specificity, order = _rank(name, accept)
        rank = (quality, specificity, -order)
        if quality > 0 and (not best or rank > best_rank):
            best, best_rank = name, rank
    if not best:
        raise ApiError(406, f"Nothing in Accept is offered. Ask for {', '.join(offered)}.")
    return best


def _rank(name: str, accept: str) -> tuple[float, int, int]:
    """(quality, specificity, place in the header) of the range that decides about a type."""
    ranges = {name: 3, f"{name.split('/')[0]}/*": 2, "*/*": 1}
    found = (0.0, 0, 0)
    for order, part in enumerate((accept or "*/*").split(",")):
        media_type, parameters = _bare(part)
        specificity = ranges.get(media_type, 0)
        if specificity > found[1]:
            found = (_quality(parameters), specificity, order)
    return found


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether gzip may be used: named, or any is, without a quality of 0."""
    codings = {}
    for part in accept_encoding.split(","):
        coding, parameters = _bare(part)
        codings[coding] = _quality(parameters)
    return codings.get("gzip", codings.get("*", 0.0)) > 0


def _quality(parameters: dict[str, str]) -> float:
    """0 for what is no number."""
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 0.0


def _chosen(accept: str, offers: Mapping[str, T], listed: str) -> T:
    """What the most wanted media type of an Accept header stands for; 406 when none is offered."""
    for media_type in parse_accept(accept or "*/*"):
        if media_type in offers:
            return offers[media_type]
    raise ApiError(406, f"Nothing in Accept is offered. Ask for {listed}.")


@functools.lru_cache(maxsize=256)
def fetch_format(accept: str) -> tuple[EmbeddedFormat, str]:
    """Embedded format and content type of a v2 fetch answer; 406 when none is acceptable."""
    return _chosen(accept, _FETCH_FORMATS, ", ".join(_EMBEDDED))


_FETCH_FORMATS = {name: (embedded, name) for name, embedded in _EMBEDDED.items()}
_FETCH_FORMATS |= dict.fromkeys(
    _NEUTRAL, (EmbeddedFormat.BINARY, "application/vnd.kafka.binary.v2+json")
)


@functools.lru_cache(maxsize=256)
def consumer_type(accept: str, embedded: EmbeddedFormat) -> str:
    """Content type of a consumer's records, whose format was chosen when it was created.

    406/40601 when another one of ours is asked for; what is none of ours says nothing.
    """
    own = f"application/vnd.kafka.{embedded.value}.v2+json"
    types = parse_accept(accept or "*/*")
    is_own = any(media_type in _NEUTRAL or media_type == own for media_type in types)
    if not is_own and any(
        media_type in _EMBEDDED or any(name in media_type for name in _SCHEMA_FORMATS)
        for media_type in types
    ):
        raise ApiError(40601, f"This consumer was created for {own}.")
    return own


@functools.lru_cache(maxsize=256)
def metadata_type(accept: str) -> str:
    """Content type of a v2 metadata answer; 406 when JSON is not acceptable."""
    return _chosen(accept, _METADATA_TYPES, f"{V2_JSON} or {JSON}")


def metadata_or_own_type(accept: str) -> str:
    """The same, of a route that answers as it does where nothing acceptable is offered."""
    try:
        return metadata_type(accept)
    except ApiError:
        return V2_JSON


_METADATA_TYPES = {**dict.fromkeys((*_NEUTRAL, *_EMBEDDED), V2_JSON), JSON: JSON}


@functools.lru_cache(maxsize=256)
def wants_receipts(accept: str) -> bool:
    """Whether a native produce is answered with a receipt a line; 406 when neither that nor JSON.

    Only who asks for it gets a stream.
    """
    offers = {NDJSON: True, **dict.fromkeys(("*/*", "application/*", JSON), False)}
    return _chosen(accept, offers, f"{JSON} or {NDJSON}")


def wants_plain_text(accept: str) -> bool:
    """Whether text/plain is preferred to JSON: delete-records then prints the tool's lines."""
    known = ("text/plain", "text/*", *_NEUTRAL, *_EMBEDDED)
    wanted = next((each for each in parse_accept(accept) if each in known), JSON)
    return wanted.startswith("text/")


@functools.lru_cache(maxsize=256)
def exposition_of(accept: str) -> Exposition:
    """The format of ``/metrics``: OpenMetrics 1.x where it is named and wanted more, else text.

    Never 406: a scraper that names a format of the future is served the oldest one.
    """
    openmetrics, text = 0.0, 0.0
    for part in accept.split(","):
        media_type, parameters = _bare(part)
        version = parameters.get("version", "1.0.0")
        if media_type == "application/openmetrics-text" and version.startswith("1."):
            openmetrics = max(openmetrics, _quality(parameters))
        elif media_type == TEXT:
            text = max(text, _quality(parameters))
    return Exposition.OPENMETRICS if openmetrics > 0 and openmetrics >= text else Exposition.TEXT
