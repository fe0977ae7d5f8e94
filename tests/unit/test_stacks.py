"""Goal: where the threads are can be told while a disk hangs.
Method: a thread that waits, and a reader of sources that fails the test when it is asked.
"""

from __future__ import annotations

import gc
import linecache
import threading
import weakref

import pytest

from kafkalog.observe.stacks import thread_stacks


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
    """What the callers had in memory goes when they end, garbage collector or not."""
    gc.disable()
    try:
        assert _look_with_a_buffer()() is None
    finally:
        gc.enable()
