"""JSON that nobody should send: a good document of a schema, spoilt in one or two places."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, settings, strategies as st

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypothesis.strategies import SearchStrategy

_DEEP = 100_000
# What stands in a member of this name, so that a document gets past its first check.
_KNOWN: Mapping[str, object] = {
    "topic": "fuzz",
    "topic_name": "fuzz-made",
    "topics": ["fuzz"],
    "partition": 0,
    "partitions_count": 2,
    "replication_factor": 1,
    "offset": 0,
    "version": 1,
    "name": "flush.ms",
    "value": "eA==",
    "topic_pattern": "fu.*",
    "link": True,
    "directory": "no/such/place",
    "at": 0,
    "timestamp": 1000,
    "format": "binary",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
}
# JSON text in the place of a value: numbers and texts at the edges of what is taken,
NUMBERS: tuple[bytes, ...] = (
    *b"0 -0 1 -1 -2 1.0 2147483647 2147483648 9007199254740993 9223372036854775807".split(),
    *b"9223372036854775808 -9223372036854775809 0.5 1e400 -1E+2147483648".split(),
    b"0." + b"0" * 30 + b"1",
)
TEXTS: tuple[bytes, ...] = (
    *rb'"" "0" "fuzz" "true" "-1" "\u0000" "../../etc" "%00%2f" "\u202e\ufeff" "(a*)*$"'.split(),
    *b'"__consumer_offsets" "__cluster_metadata" "9999-12-31T23:59:59.999999999Z"'.split(),
    b'"+292278994-08-17T07:12:55.807Z"',
    b'"' + b"a" * 20_000 + b'"',
)
# other good JSON,
OTHERS: tuple[bytes, ...] = (
    b"null",
    b"true",
    b"false",
    b"[]",
    b"{}",
    b"[[]]",
    b'{"":null}',
    b"[" + b"0," * 20_000 + b"0]",
)
# and what is none, or is too much of it.
BROKEN: tuple[bytes, ...] = (
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"01",
    b"+1",
    b"9" * 5000,
    b"0." + b"0" * 5000 + b"1",
    b'"\\ud800"',
    b'"\\udc00\\ud800"',
    b'"\0"',
    b'"\n"',
    b'"\xed\xa0\x80"',
    b'"\xff"',
    b"[" * _DEEP + b"]" * _DEEP,
    b'{"a":' * _DEEP + b"0" + b"}" * _DEEP,
    b"[" * _DEEP,
    b"",
    b"undefined",
    b"/**/0",
)
_HOLE = "\ue000hole\ue000"
_TWICE = "\ue000twice\ue000"


def examples(count: int) -> settings:
    """So many with the default profile of a hundred; the deep profile has fifty times as many."""
    return settings(
        max_examples=count * settings().max_examples // 100,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def example_of(schema: Any, components: Mapping[str, Any], name: str = "") -> object:
    """A small document that a JSON Schema of ours takes."""
    if name in _KNOWN:
        return _KNOWN[name]
    if "$ref" in schema:
        return example_of(components[schema["$ref"].rpartition("/")[2]], components)
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return example_of(schema[choice][0], components, name)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    kind = schema.get("type")
    if kind == "object":
        return {
            member: example_of(each, components, member)
            for member, each in schema.get("properties", {}).items()
        }
    if kind == "array":
        return [example_of(schema["items"], components)]
    simple = {"integer": 1, "number": 1.0, "boolean": False, "string": "x"}
    return None if kind is None else simple.get(kind)


def _places(document: object, at: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Paths to every value of a document."""
    found = [at]
    if isinstance(document, dict):
        for name, value in document.items():
            found += _places(value, (*at, name))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            found += _places(value, (*at, index))
    return found


def _replaced(document: Any, at: tuple[Any, ...], value: object) -> Any:
    """A copy with another value at a path."""
    if not at:
        return value
    if isinstance(document, dict):
        return {**document, at[0]: _replaced(document[at[0]], at[1:], value)}
    changed = list(document)
    changed[at[0]] = _replaced(document[at[0]], at[1:], value)
    return changed


def _kind_of(document: Any, at: tuple[Any, ...]) -> type:
    """Of the value at a path."""
    for part in at:
        document = document[part]
    return type(document)


@st.composite
def _thinned(draw: st.DrawFn, document: object) -> object:
    """Without some members: what excludes each other, or is needed, is not always there."""
    if isinstance(document, list):
        return [draw(_thinned(each)) for each in document]
    if not isinstance(document, dict):
        return document
    dropped = draw(st.sets(st.sampled_from(sorted(document)), max_size=3)) if document else set()
    return {name: draw(_thinned(value)) for name, value in document.items() if name not in dropped}


@st.composite
def _with_a_hole(draw: st.DrawFn, whole: object) -> bytes:
    """A value replaced by another; perhaps a member twice or one that nobody knows."""
    document = draw(st.one_of(st.just(whole), _thinned(whole)))
    at = draw(st.sampled_from(_places(document)))
    alike = {int: NUMBERS, str: TEXTS}.get(_kind_of(document, at), OTHERS)
    fragment = draw(st.sampled_from(draw(st.sampled_from((alike, alike, OTHERS, BROKEN)))))
    spoilt = _replaced(document, at, _HOLE)
    extra = draw(st.sampled_from(("", "", "", "", "twice", "unknown")))
    if extra and isinstance(spoilt, dict) and spoilt:
        name = draw(st.sampled_from(sorted(spoilt))) if extra == "twice" else "no_such_member"
        spoilt = {**spoilt, _TWICE: [name, spoilt.get(name)]}
    text = json.dumps(spoilt)
    twice = json.dumps(_TWICE) + ": ["
    if twice in text:  # ["name", value] stands for the member itself
        head, _, tail = text.rpartition(twice)
        name, _, rest = tail.partition(", ")
        text = f"{head}{name}: {rest.removesuffix(']}')}}}"
    return text.encode().replace(json.dumps(_HOLE).encode(), fragment)


@st.composite
def _as_bytes(draw: st.DrawFn, document: object) -> bytes:
    """The text of a good document, spoilt as bytes."""
    text = json.dumps(document)
    data = text.encode()
    how = draw(st.sampled_from(("bom", "utf-16", "utf-32", "cut", "behind", "byte", "swap")))
    position = draw(st.integers(0, len(data)))
    behind = draw(st.sampled_from((b"}", b"\0", b"{}", b" x", b"//", b"\xef\xbb\xbf")))
    byte = draw(st.integers(0, 255))
    spoilt = {
        "bom": b"\xef\xbb\xbf" + data,
        "utf-16": text.encode("utf-16"),
        "utf-32": text.encode("utf-32"),
        "cut": data[:position],
        "behind": data + behind,
        "byte": data[:position] + bytes((byte,)) + data[position:],
        "swap": data[position:] + data[:position],
    }
    return spoilt[how]


def hostile(document: object) -> SearchStrategy[bytes]:
    """Bodies that are nearly the document; some are as good as it."""
    good = _thinned(document).map(lambda each: json.dumps(each).encode())
    spoilt = _with_a_hole(document)
    return st.one_of(spoilt, spoilt, spoilt, good, _as_bytes(document))
