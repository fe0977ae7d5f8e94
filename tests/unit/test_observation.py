"""Goal: one event is one line; where the threads are can be told while a disk hangs; a look into
the process does not stand in its way.
Method: threads that hang, lines parsed back.
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import linecache
import logging
import re
import threading
import weakref
from typing import TYPE_CHECKING

import pytest
import structlog
from msgspec import to_builtins

from kafkalog.observe.logging import configure_logging
from kafkalog.observe.stacks import thread_stacks
from kafkalog.server.admin.debug import metrics_cardinality

if TYPE_CHECKING:
    from kafkalog.server.admin.debug import MetricsCardinality


def _stand_still(is_there: threading.Event, go_on: threading.Event) -> None:
    is_there.set()
    go_on.wait()


def test_no_source_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """File, line and name of each call, from memory alone."""
    is_there, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=_stand_still, args=(is_there, go_on), name="stands-still")
    thread.start()
    is_there.wait()
    try:
        with monkeypatch.context() as patched:
            for name in ("getline", "getlines", "updatecache", "checkcache"):
                patched.setattr(linecache, name, pytest.fail)
            text = thread_stacks()
    finally:
        go_on.set()
        thread.join()
    (stack,) = (part for part in text.split("\n\n") if part.startswith("Thread stands-still ("))
    calls = [line.rpartition(", in ")[2] for line in stack.strip().splitlines()[1:]]
    assert calls.index("Thread.run") < calls.index("_stand_still")
    assert f'  File "{__file__}", line ' in stack


class _Buffer:
    """What a caller has in memory."""


def _look_with_a_buffer() -> weakref.ref[_Buffer]:
    buffer = _Buffer()
    assert "_look_with_a_buffer" in thread_stacks()
    return weakref.ref(buffer)


def test_a_look_keeps_nothing_alive() -> None:
    gc.disable()
    try:
        assert _look_with_a_buffer()() is None
    finally:
        gc.enable()


PARTITIONS = 20_000


def test_the_loop_turns_while_samples_are_counted() -> None:
    lines = [f'size{{topic="t\\"{n % 7}",partition="{n}"}} {n}\n' for n in range(PARTITIONS)]
    page = "".join(("# HELP up One.\n# TYPE up gauge\nup 1\n# TYPE size gauge\n", *lines))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> MetricsCardinality:
        counting = asyncio.create_task(count_turns())
        found = await metrics_cardinality(page.encode())
        counting.cancel()
        return found

    assert to_builtins(asyncio.run(run())) == {
        "samples": PARTITIONS + 1,
        "families": [
            {
                "name": "size",
                "samples": PARTITIONS,
                "labels": {"topic": 7, "partition": PARTITIONS},
            },
            {"name": "up", "samples": 1, "labels": {}},
        ],
    }
    assert turns >= PARTITIONS // 100


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


def test_the_report_of_a_clean_is_lines_on_a_console() -> None:
    stream = io.StringIO()
    configure_logging(stream, log_format="console", level="info")
    structlog.get_logger("kafka.log.LogCleaner").info(
        "cleaned\n\tStart\n\tEnd\nno \x1b", p="a\n\tb"
    )
    structlog.get_logger("kafkalog.log").info("bad\n\tline")
    first, start, end, other = stream.getvalue().splitlines()
    assert first.endswith("cleaned")
    assert start == "\tStart"
    assert end.startswith("\tEnd" + r"\x0ano \x1b")
    assert r"a\x0a\x09b" in end
    assert r"bad\x0a\x09line" in other


def test_equal_warnings_are_one_line_a_minute_with_their_number() -> None:
    """One at once; the rest when the minute is over, before any other line, or at the end."""
    stream, now = io.StringIO(), [100.0]
    configure_logging(stream, log_format="json", level="info", monotonic=lambda: now[0])
    log = structlog.get_logger("k")

    def lines() -> list[tuple[str, str | None, int | None]]:
        text = stream.getvalue()
        stream.seek(0)
        stream.truncate()
        told = map(json.loads, text.splitlines())
        return [(line["event"], line.get("log_dir"), line.get("repeated")) for line in told]

    for _ in range(5):
        log.error("short", log_dir="/a", remedy="more")
        log.error("short", log_dir="/b", remedy="more")
        log.info("usual")
        logging.getLogger("uvloop").warning("odd %s", "thing")
    shorts = [("short", "/a", None), ("short", "/b", None)]
    usual = [("usual", None, None)]
    odd = [("odd thing", None, None)]
    assert lines() == [*shorts, *usual, *odd, *usual * 4]
    now[0] += 60
    log.info("usual")
    repeated = [
        ("short", "/a", 4),
        ("short", "/b", 4),
        ("odd thing (repeated 4 times)", None, None),
    ]
    assert lines() == [*repeated, *usual]
    log.error("short", log_dir="/a", remedy="more")
    assert lines() == []
    now[0] += 60
    log.error("short", log_dir="/b", remedy="more")
    assert lines() == [("short", "/a", 1), ("short", "/b", None)]
    log.error("short", log_dir="/b", remedy="more")
    (handler,) = logging.getLogger().handlers
    handler.close()
    assert lines() == [("short", "/b", 1)]


def test_exceptions_are_kept() -> None:
    stream = io.StringIO()
    configure_logging(stream, log_format="json", level="debug")
    try:
        raise OSError(28, "No space left on device")
    except OSError:
        structlog.get_logger("k").exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "No space left on device" in json.loads(line)["exception"]
