"""Goal: what a form of the console costs is bounded, whatever is in it.
Method: bodies of hostile shapes; calls and memory are counted, as times differ by machine.
"""

from __future__ import annotations

import tracemalloc
from urllib.parse import unquote

import pytest

from kafkalog.server.console.pages import decoded_form
from kafkalog.server.console.produce import record_of
from kafkalog.server.protocol.errors import ApiError
from tests.unit.test_console_views import calls_of

TYPED = {
    "key_format": "text",
    "key": "",
    "value_format": "text",
    "value": "",
    "headers": "",
    "partition": "",
}


def test_a_form_of_many_fields_is_refused_before_they_are_decoded() -> None:
    def decode() -> None:
        with pytest.raises(ApiError, match="no form"):
            decoded_form(b"a=&" * 10_000, ("a", "b"))

    assert calls_of(unquote.__code__, decode) == 0
    with pytest.raises(ApiError, match="the fields a, b, each of them once"):
        decoded_form(b"a=&b=&b=", ("a", "b"))
    assert decoded_form(b"a=%C3%BC&b=", ("a", "b")) == {"a": "ü", "b": ""}


def test_lines_of_headers_are_counted_before_they_are_read() -> None:
    for text in ("\n" * 600_000, "a: b\r\n" * 101):
        with pytest.raises(ApiError, match="100 headers at most"):
            record_of(TYPED | {"headers": text}, 0)
    record_of(TYPED | {"headers": "a: b\r\n\r\n" * 100}, 0)


def test_a_json_value_is_looked_through_without_its_objects() -> None:
    typed = TYPED | {"value_format": "json", "value": "[" + "[]," * 100_000 + "1]"}
    tracemalloc.start()
    try:
        record_of(typed, 0)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 6 * len(typed["value"])
    with pytest.raises(ApiError, match="no JSON"):
        record_of(typed | {"value": typed["value"][:-1]}, 0)
