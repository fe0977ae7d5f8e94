"""Goal: who starts the daemon on a terminal sees how far it is and how long it may take.
Method: the text of made-up numbers; the bytes that reach a real pseudo-terminal, with log lines in
between.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pty
import termios
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
import structlog

from kafkalog.broker.values import Loading
from kafkalog.observe.logging import configure_logging
from kafkalog.observe.terminal_line import TerminalLine
from kafkalog.server.supervision import loading_text, remaining_ms, show_loading

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20
NOTHING = Loading(0, 0, 0, 0, 0, 0)


def loading(logs: int, done: int, left_bytes: int, done_bytes: int, elapsed_ms: int) -> Loading:
    return Loading(logs, done, 0, left_bytes, done_bytes, elapsed_ms)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (NOTHING, "Reading the log directories"),
        (loading(10, 0, 0, 0, 500), "Loading logs: 0/10"),
        (loading(10, 0, 5 * MIB, 0, 500), "Loading logs: 0/10, recovered 0 B at 0 B/s"),
        (loading(10, 4, 0, 0, 2_000), "Loading logs: 4/10, about 3 s left"),
        (
            loading(2_000, 500, 600 * MIB, 100 * MIB, 20_000),
            "Loading logs: 500/2000, recovered 100.0 MiB at 5.0 MiB/s, about 2 min 0 s left",
        ),
        (
            loading(3, 1, 10, 1_000, 7_200_000),
            "Loading logs: 1/3, recovered 1000 B at 0 B/s, about 4 h 0 min left",
        ),
        (
            loading(5, 5, 0, 2 * MIB, 0),
            "Loading logs: 5/5, recovered 2.0 MiB at 2.0 GiB/s, about 0 s left",
        ),
    ],
)
def test_the_text(state: Loading, text: str) -> None:
    """M16: numbers of bytes only where bytes are recovered, a guess only where there is a pace."""
    assert loading_text(state) == text


def test_the_longer_guess_counts() -> None:
    """M16: one large log beside many small ones, and many logs still to come."""
    assert remaining_ms(loading(10, 9, 9_000, 1_000, 1_000)) == 9_000
    assert remaining_ms(loading(100, 1, 0, 1_000, 1_000)) == 99_000
    assert remaining_ms(loading(100, 0, 1_000, 0, 1_000)) is None


class Terminal:
    """A pseudo-terminal: what is written to ``stream`` comes out of ``read``."""

    def __init__(self, columns: int) -> None:
        self.reader, writer = pty.openpty()
        termios.tcsetwinsize(writer, (24, columns))
        self.stream = os.fdopen(writer, "w")

    def read(self, until: str) -> str:
        """What comes up to these characters; the test's time bounds the wait."""
        text = ""
        while not text.endswith(until):
            text += os.read(self.reader, 100_000).decode()
        return text

    def close(self) -> None:
        """Both ends."""
        with suppress(OSError):  # what it could not write
            self.stream.close()
        os.close(self.reader)


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """The process's set-up, back after the test."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """Of twenty columns."""
    opened = Terminal(columns=20)
    yield opened
    opened.close()


def test_the_line_stays_below_what_is_printed(terminal: Terminal) -> None:
    """M16: redrawn in place, never wider than the screen, away while a log line is printed."""
    line = TerminalLine(terminal.stream)
    line.show("")
    line.show("one")
    line.show("two, which is longer than the screen")
    with line.hidden():
        terminal.stream.write("log line\n")
    line.show("")
    with line.hidden():
        terminal.stream.write("more\n")
    erase, two = "\r\x1b[K", "two, which is longe"
    terminal.stream.flush()
    expected = f"{erase}one{erase}{two}{erase}log line\r\n{two}{erase}more\r\n"
    assert terminal.read("more\r\n") == expected


def test_log_lines_go_above_it(terminal: Terminal, restored_logging: None) -> None:
    """M16: the daemon's set-up, the log on the same terminal."""
    line = TerminalLine(terminal.stream)
    configure_logging(terminal.stream, log_format="json", level="info", above=line)
    line.show("half")
    logging.getLogger("x").warning("said")
    first, second = terminal.read("\r\nhalf").split("\r\n")
    assert first.startswith('\r\x1b[Khalf\r\x1b[K{"timestamp"')
    assert second == "half"


def test_a_terminal_that_is_gone_costs_the_line_only(terminal: Terminal) -> None:
    line = TerminalLine(terminal.stream)
    os.close(terminal.reader)
    terminal.reader = os.open(os.devnull, os.O_RDONLY)
    line.show("nobody reads this")
    with line.hidden():
        pass
    line.show("")


def test_it_is_redrawn_until_the_load_ends(terminal: Terminal) -> None:
    """M16: numbers of the moment; nothing is left on the screen."""
    states = iter([loading(2, 0, 0, 0, 1), loading(2, 1, 0, 0, 400)])

    async def watch() -> None:
        last = asyncio.Event()

        def next_state() -> Loading:
            state = next(states)
            if state.partitions_loaded:
                last.set()
            return state

        shown = asyncio.create_task(show_loading(TerminalLine(terminal.stream), next_state))
        await last.wait()
        await asyncio.sleep(0)
        shown.cancel()
        await asyncio.wait([shown])

    asyncio.run(watch())
    erase = "\r\x1b[K"
    drawn = terminal.read(f"1/2, {erase}").split(erase)
    assert drawn == ["", "Loading logs: 0/2", "Loading logs: 1/2, ", ""]
