"""BackgroundOperations: work that outlasts a request, found again by its id.

Owns the list of what runs and what ended, in memory: the latest ``_KEPT`` of them, none survives a
restart. The work runs as a one-shot task of the scheduler (nice 15), so it is in ``GET /v1/tasks``
too. Any thread may look; the numbers of ``progress`` are written by the thread that works.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kafkalog.errors import KafkalogError, NotReady
from kafkalog.format.topic_names import encode_id, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalog.broker.runtime import Runtime

_KEPT = 64


class OperationState(enum.Enum):
    """The value is its spelling in answers."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


OperationKind = Literal[
    "backup", "cleaner-run", "log-clean", "log-flush", "log-retain", "log-roll", "retention-run"
]


@dataclass(slots=True)
class BackgroundOperation:
    """One piece of work. Moments are wall clock ms; ``ended_ms`` -1 while it runs."""

    # constant after construction
    operation_id: str
    kind: OperationKind
    details: Mapping[str, str]
    started_ms: int
    # written by the thread that works, the state last
    progress: dict[str, int] = field(default_factory=dict)
    result: dict[str, object] = field(default_factory=dict)
    ended_ms: int = -1
    error: KafkalogError | None = None
    state: OperationState = OperationState.RUNNING


class BackgroundOperations:
    """See the module."""

    def __init__(self, runtime: Runtime) -> None:
        # constant after construction
        self._clock = runtime.clock
        self._random = runtime.random
        self._scheduler = runtime.scheduler
        # single dictionary operations by any thread
        self._operations: dict[str, BackgroundOperation] = {}
        # published
        self.is_stopping = False

    def begin(
        self,
        kind: OperationKind,
        details: Mapping[str, str],
        work: Callable[[BackgroundOperation], None],
    ) -> BackgroundOperation:
        """Run ``work`` soon, as the task ``kafkalog-<kind>``; a KafkalogError is its outcome."""
        operation = self.begin_elsewhere(kind, details)
        self._scheduler.schedule_once(f"kafkalog-{kind}", lambda: self._run(operation, work))
        return operation

    def begin_elsewhere(
        self, kind: OperationKind, details: Mapping[str, str]
    ) -> BackgroundOperation:
        """Work on the caller's own threads; the caller ends it with ``end``."""
        operation = BackgroundOperation(
            encode_id(new_id(self._random.uuid_bytes)), kind, details, self._clock.wall_ms()
        )
        self._operations[operation.operation_id] = operation
        ended = [key for key, each in self._operations.copy().items() if each.ended_ms >= 0]
        for key in ended[:-_KEPT]:
            self._operations.pop(key, None)
        return operation

    def end(
        self,
        operation: BackgroundOperation,
        error: KafkalogError | None,
        *,
        is_defect: bool = False,
    ) -> None:
        """The work is over, by an error, a defect of ours, or well; any thread, once."""
        if error is not None:
            operation.error = error.with_traceback(None)  # a frame holds open files
        operation.ended_ms = self._clock.wall_ms()
        is_well = error is None and not is_defect
        # The state last: who sees it sees the rest.
        operation.state = OperationState.SUCCEEDED if is_well else OperationState.FAILED

    def find(self, operation_id: str) -> BackgroundOperation | None:
        """The operation of that id; None when it is not known any more, or never was."""
        return self._operations.get(operation_id)

    def known(self) -> list[BackgroundOperation]:
        """Those that run and the latest that ended, in the order in which they were begun."""
        return list(self._operations.copy().values())

    def is_running(self, kind: OperationKind) -> bool:
        """Whether one of that kind has not ended."""
        return any(
            each.kind == kind and each.state is OperationState.RUNNING
            for each in self._operations.copy().values()
        )

    def stop(self) -> None:
        """The daemon stops: what runs ends at its next ``check_stop``."""
        self.is_stopping = True

    def check_stop(self) -> None:
        """For work, between its slices: NotReady when the daemon stops."""
        if self.is_stopping:
            raise NotReady("The daemon is stopping")

    def _run(
        self, operation: BackgroundOperation, work: Callable[[BackgroundOperation], None]
    ) -> None:
        try:
            work(operation)
        except BaseException as error:  # a defect is reported by the scheduler
            fault = error if isinstance(error, KafkalogError) else None
            self.end(operation, fault, is_defect=fault is None)
            raise
        self.end(operation, None)
