"""SinkRuns: which run of a query has its sink, and which begins were answered.

A run is one life of a query's driver. The one that began last has the sink: what a former one left
open is aborted by its first begin, and who still works for a former one is refused. A call is one
begin, however often it is sent: a repetition that comes late gets the answer that was given, and
fences nobody; behind a newer call of the same producer it is refused.

In memory alone, under the turn of the sink. A restart forgets it: no call is on its way then, and
the first run that begins is taken for the one that had it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import ProducerFenced

if TYPE_CHECKING:
    from kafkalog.format.disk.sink_state import ProducerKey

_FORMER_MAX = 16  # runs whose tasks may still be alive
_CALLS_MAX = 8  # of one producer that may still be on their way


class Caller(NamedTuple):
    """Who begins; None: it does not tell."""

    run_id: str | None = None
    call_id: str | None = None


UNTOLD = Caller()


class SinkRuns:
    """See the module."""

    __slots__ = ("_calls", "_former", "_run_id")

    def __init__(self) -> None:
        self._run_id: str | None = None
        self._former: deque[str] = deque(maxlen=_FORMER_MAX)
        # Begins of what is open, the newest last.
        self._calls: dict[ProducerKey, tuple[str | None, ...]] = {}

    def check(self, query: str, run_id: str | None) -> None:
        """ProducerFenced for a former run."""
        if run_id in self._former:
            raise ProducerFenced(f"Another run of query {query} has begun since")

    def is_other(self, run_id: str | None) -> bool:
        """Whether the run takes the sink over from one that is known."""
        return None not in (run_id, self._run_id) and run_id != self._run_id

    def is_repeated(self, query: str, key: ProducerKey, caller: Caller) -> bool:
        """Whether this very call began the newest of this producer, as far as that is open.

        ProducerFenced when it came late, behind another one that was answered.
        """
        calls = self._calls.get(key, ())
        if caller.call_id is None or caller.call_id not in calls:
            return False
        if caller.call_id != calls[-1]:
            raise ProducerFenced(f"A newer begin of this attempt of query {query} was answered")
        return True

    @property
    def call_count(self) -> int:
        """Begins that are remembered: of the batch that is open."""
        return sum(len(calls) for calls in self._calls.values())

    def forget_calls(self) -> None:
        """Nothing is open any more, so no begin can be repeated."""
        self._calls.clear()

    def note(self, key: ProducerKey, caller: Caller) -> None:
        """A begin that is durable."""
        if self._run_id is not None and self.is_other(caller.run_id):
            self._former.append(self._run_id)
        self._run_id = caller.run_id or self._run_id
        self._calls[key] = (*self._calls.get(key, ()), caller.call_id)[-_CALLS_MAX:]
