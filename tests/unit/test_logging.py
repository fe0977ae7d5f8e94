"""Goal: one event is one line with an RFC 3339 UTC time, whoever logged it and whatever it holds.
Method: log into a text buffer through structlog and the standard library, then read the lines.
"""

from __future__ import annotations

import io
import json
import logging
import re
from typing import TYPE_CHECKING

import pytest
import structlog

from kafkalog.observe.logging import configure_logging

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_json_lines_from_both_worlds() -> None:
    stream = io.StringIO()
    configure_logging(stream, log_format=None, level="info")
    structlog.get_logger("kafkalog.log").info("rolled\nnew", topic="t", bytes=5)
    logging.getLogger("aiohttp").warning("odd %s", "thing")
    structlog.get_logger("kafkalog.log").debug("hidden")
    ours, theirs = (json.loads(line) for line in stream.getvalue().splitlines())
    assert list(ours)[:4] == ["timestamp", "level", "event", "logger"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", ours["timestamp"])
    assert (ours["event"], ours["topic"], ours["bytes"]) == ("rolled\nnew", "t", 5)
    assert (theirs["event"], theirs["level"], theirs["logger"]) == (
        "odd thing",
        "warning",
        "aiohttp",
    )


def test_console_lines_cannot_be_forged() -> None:
    stream = io.StringIO()
    configure_logging(stream, log_format="console", level="info")
    structlog.get_logger("k").info("bad\nline \x1b[31m", topic="a\u2028b\r")
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert "\x1b" not in text
    assert r"bad\x0aline \x1b[31m" in text


def test_exceptions_are_kept() -> None:
    stream = io.StringIO()
    configure_logging(stream, log_format="json", level="debug")
    try:
        raise OSError(28, "No space left on device")
    except OSError:
        structlog.get_logger("k").exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "No space left on device" in json.loads(line)["exception"]
