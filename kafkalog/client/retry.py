"""When a request is sent again, and how steps become requests, pauses and a result.

This is the core of both clients, without a socket. An operation is a generator that yields
requests and receives answers (`Steps`). `with_retries` adds the retries: it yields effects (send
this request, pause for this time), and the client carries them out and passes back the outcomes.

| a try ended with | Repeat.ALWAYS | Repeat.IF_NOTHING_WAS_DONE |
|---|---|---|
| an answer below 400 | done | done |
| no connection (refused, no such host) | again | again |
| an untrusted certificate, a port without TLS | raised | raised |
| 429 or 503 with ``retriable`` | again | again |
| no answer, or half of one | again | raised: OutcomeUnknown |
| 500 with ``retriable`` (50003) | again | raised: NotMadeDurable |
| 507: a full disk does not empty in seconds | raised | raised |
| anything else | raised | raised |

The pause doubles from `backoff_seconds` to `backoff_seconds_max`, has a random jitter of up to half
of it, and is never shorter than the daemon's Retry-After. When the next pause would end after the
deadline, which counts from the first failure, the last failure is raised; with `starting_seconds`
it counts anew from the first answer of a daemon that is starting. A change whose answer was lost
once may have been made, whatever later tries say: a later refusal for a passing reason is raised as
OutcomeUnknown, and any other one without ``nothing_was_done``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from kafkalog.client.errors import ClientError, ConnectFailed, OutcomeUnknown, failure_of
from kafkalog.client.messages import Answer, NoAnswer, Repeat, Request

T = TypeVar("T")

Steps = Generator[Request, Answer, T]
"""An operation: yields requests, receives their answers, returns its result."""

_PASSING = (None, 429, 500, 503)


@dataclass(frozen=True, slots=True)
class Retries:
    """How long to retry. ``deadline_seconds`` counts from the first failure; 0: one try.

    starting_seconds   the deadline, if it is later, while the daemon says that it is starting
    no_daemon_seconds  likewise, while there is no connection because no daemon may run there
    opening_seconds    likewise; called each time, for a daemon that is about to open its port; it
                       returns 0 when none is
    on_waiting         called with the failure and the deadline before each pause that one of these
                       three allows
    """

    deadline_seconds: float = 30.0
    backoff_seconds: float = 0.05
    backoff_seconds_max: float = 2.0
    starting_seconds: float = 0.0
    no_daemon_seconds: float = 0.0
    opening_seconds: Callable[[], float] | None = None
    on_waiting: Callable[[ClientError, float], None] | None = None

    def patience_seconds(self, failure: ClientError) -> float:
        """The deadline that the kind of failure has of its own; 0: none."""
        if failure.is_starting:
            return self.starting_seconds
        if not (isinstance(failure, ConnectFailed) and failure.may_be_down):
            return 0.0
        opening_seconds = 0.0 if self.opening_seconds is None else self.opening_seconds()
        return max(self.no_daemon_seconds, opening_seconds)


ONE_TRY = Retries(deadline_seconds=0)


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


Effect = Request | Pause
Outcome = Answer | NoAnswer | None
"""The outcome of an effect; None of a pause."""


@dataclass(frozen=True, slots=True)
class RetryContext:
    """Of one client: its daemon, its retries, a clock in seconds, and a random number in [0, 1)."""

    address: object
    retries: Retries
    clock: Callable[[], float]
    chance: Callable[[], float]


def may_repeat(repeat: Repeat, failure: ClientError) -> bool:
    """The table above. Pure."""
    if not failure.retriable or failure.status not in _PASSING:
        return False
    return repeat is Repeat.ALWAYS or failure.nothing_was_done


def pause_seconds(
    retries: Retries,
    failure: ClientError,
    tries: int,
    elapsed_seconds: float,
    chance: float,
    patience_seconds: float = 0.0,
) -> float | None:
    """The wait before the next try; None when it would pass the deadline. Pure.

    ``patience_seconds``: the deadline of the failure's kind.
    """
    ceiling = min(retries.backoff_seconds * 2.0 ** min(tries - 1, 60), retries.backoff_seconds_max)
    seconds = max(ceiling * (1 + chance) / 2, failure.retry_after_seconds)
    deadline_seconds = max(retries.deadline_seconds, patience_seconds)
    return seconds if elapsed_seconds + seconds <= deadline_seconds else None


def send_with_retries(
    request: Request, context: RetryContext
) -> Generator[Effect, Outcome, Answer]:
    """Send one request until it is answered or the deadline passes. Raises ClientError."""
    retries = context.retries
    began: float | None = None
    tries, unanswered, was_starting = 0, None, False
    while True:
        outcome = yield request
        assert outcome is not None, "a request has an outcome"
        failure = failure_of(outcome, context.address)
        if failure is None:
            assert isinstance(outcome, Answer)
            return outcome
        tries += 1
        now = context.clock()
        is_first_start = failure.is_starting and not was_starting and retries.starting_seconds > 0
        was_starting = was_starting or failure.is_starting
        began = now if began is None or is_first_start else began
        patience_seconds = retries.patience_seconds(failure)
        pause = None
        if may_repeat(request.repeat, failure):
            pause = pause_seconds(
                retries, failure, tries, now - began, context.chance(), patience_seconds
            )
        if pause is None:
            raise failure if request.is_read else _final(failure, unanswered)
        if not failure.nothing_was_done:
            unanswered = failure
        if patience_seconds and retries.on_waiting is not None:
            retries.on_waiting(failure, patience_seconds)
        yield Pause(pause)


def _final(failure: ClientError, unanswered: ClientError | None) -> ClientError:
    """What is raised for a change: no later refusal proves that an unanswered try did nothing."""
    if unanswered is None or not failure.nothing_was_done:
        return failure
    if not failure.retriable:
        failure.nothing_was_done = False
        return failure
    unknown = OutcomeUnknown(
        f"{unanswered.message} Later tries did not show its outcome: {failure.message}",
        retriable=True,
    )
    unknown.may_be_down = failure.may_be_down
    unknown.__cause__ = failure
    return unknown


def with_retries(steps: Steps[T], context: RetryContext) -> Generator[Effect, Outcome, T]:
    """The operation with retries; a failure is raised inside the operation, which may catch it.

    Raises ClientError, and whatever the operation itself raises.
    """
    try:
        request = next(steps)
        while True:
            try:
                answer = yield from send_with_retries(request, context)
            except ClientError as failure:
                request = steps.throw(failure)
            else:
                request = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
