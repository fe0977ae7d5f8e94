"""The stacks of all threads of the process as text.

Takes only the interpreter's lock. Unlike a traceback it does not contain the source lines, which
would be read from a disk, perhaps one that hangs.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


def thread_stacks() -> str:
    """Name and stack of every Python thread, innermost call last, as tracebacks are."""
    threads = {thread.ident: thread for thread in threading.enumerate()}
    # In a call, as a variable of this frame that held this very frame would keep alive whatever the
    # callers have in theirs until the garbage collector comes by.
    return "\n".join([_stack(threads.get(ident), frame) for ident, frame in _frames()])


def _frames() -> list[tuple[int, FrameType]]:
    return sorted(sys._current_frames().items())


def _stack(thread: threading.Thread | None, innermost: FrameType) -> str:
    name = "unknown to Python" if thread is None else thread.name
    native = "" if thread is None else f" ({thread.native_id})"
    return f"Thread {name}{native}:\n" + "".join(reversed([*_lines(innermost)]))


def _lines(innermost: FrameType) -> Iterator[str]:
    frame: FrameType | None = innermost
    while frame is not None:
        code = frame.f_code
        yield f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_qualname}\n'
        frame = frame.f_back
