"""Stacks: where every thread of the process is now, as text. Takes the interpreter's lock alone."""

from __future__ import annotations

import sys
import threading
import traceback


def thread_stacks() -> str:
    """Name and stack of every Python thread, innermost call last, as tracebacks are."""
    threads = {thread.ident: thread for thread in threading.enumerate()}
    parts = []
    for ident, frame in sorted(sys._current_frames().items()):
        thread = threads.get(ident)
        name = "unknown to Python" if thread is None else thread.name
        native = "" if thread is None else f" ({thread.native_id})"
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"Thread {name}{native}:\n{stack}")
    return "\n".join(parts)
