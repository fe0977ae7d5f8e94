"""When a request is sent again, and how steps become requests, pauses and a result.

The one core of both clients, without a socket: an operation is a generator that yields requests
and is given answers (`Steps`). `played` adds the tries and yields what is to be done: send this,
pause so long. A client does it in its own way and passes back what came of it.

| a try ended with | Repeat.ALWAYS | Repeat.IF_NOTHING_WAS_DONE |
|---|---|---|
| an answer below 400 | done | done |
| no connection (refused, no such host) | again | again |
| a certificate that is not believed | raised | raised |
| 429 or 503 with ``retriable`` | again | again |
| no answer, or half of one | again | raised: OutcomeUnknown |
| 500 with ``retriable`` (50003) | again | raised: NotMadeDurable |
| 507: a full disk does not empty in seconds | raised | raised |
| anything else | raised | raised |

The pause doubles from `backoff_seconds` to `backoff_seconds_max`, is cut by chance to between half
and all of it, and is never shorter than the daemon's Retry-After. When the next pause would end
behind the deadline, which counts from the first failure, the last one is raised. A change that
had a try without an answer may be done whatever later tries say: their refusal for a passing
reason is raised as OutcomeUnknown, any other one with ``nothing_was_done`` taken back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from kafkalog.client.errors import ClientError, OutcomeUnknown, failure_of
from kafkalog.client.messages import Answer, NoAnswer, Repeat, Request

T = TypeVar("T")

Steps = Generator[Request, Answer, T]
"""An operation: yields requests, is given their answers, returns its result."""

_PASSING = (None, 429, 500, 503)


@dataclass(frozen=True, slots=True)
class Retries:
    """How long and how often. ``deadline_seconds`` counts from the first failure; 0: one try."""

    deadline_seconds: float = 30.0
    backoff_seconds: float = 0.05
    backoff_seconds_max: float = 2.0


ONE_TRY = Retries(deadline_seconds=0)


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so long."""

    seconds: float


Effect = Request | Pause
Outcome = Answer | NoAnswer | None
"""What came of an effect; None of a pause."""


@dataclass(frozen=True, slots=True)
class Manner:
    """What one client needs to decide: its daemon, its patience, a clock (s) and chance [0, 1)."""

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
    retries: Retries, failure: ClientError, tries: int, elapsed_seconds: float, chance: float
) -> float | None:
    """How long to wait before the try after ``tries``, None when the deadline says no. Pure."""
    ceiling = min(retries.backoff_seconds * 2.0 ** min(tries - 1, 60), retries.backoff_seconds_max)
    seconds = max(ceiling * (1 + chance) / 2, failure.retry_after_seconds)
    return seconds if elapsed_seconds + seconds <= retries.deadline_seconds else None


def exchange(request: Request, manner: Manner) -> Generator[Effect, Outcome, Answer]:
    """One request until it is answered or given up. Raises ClientError."""
    began: float | None = None
    tries, unanswered = 0, None
    while True:
        outcome = yield request
        assert outcome is not None, "a request comes to something"
        failure = failure_of(outcome, manner.address)
        if failure is None:
            assert isinstance(outcome, Answer)
            return outcome
        tries += 1
        now = manner.clock()
        began = now if began is None else began
        pause = None
        if may_repeat(request.repeat, failure):
            pause = pause_seconds(manner.retries, failure, tries, now - began, manner.chance())
        if pause is None:
            raise failure if request.is_read else _final(failure, unanswered)
        if not failure.nothing_was_done:
            unanswered = failure
        yield Pause(pause)


def _final(failure: ClientError, unanswered: ClientError | None) -> ClientError:
    """What is raised of a change: no later refusal says that an unanswered try did nothing."""
    if unanswered is None or not failure.nothing_was_done:
        return failure
    if not failure.retriable:
        failure.nothing_was_done = False
        return failure
    unknown = OutcomeUnknown(
        f"{unanswered.message} Later tries did not tell what came of it: {failure.message}",
        retriable=True,
    )
    unknown.__cause__ = failure
    return unknown


def played(steps: Steps[T], manner: Manner) -> Generator[Effect, Outcome, T]:
    """The operation with its tries; a failure is raised inside the operation, which may catch it.

    Raises ClientError, and whatever the operation itself raises.
    """
    try:
        request = next(steps)
        while True:
            try:
                answer = yield from exchange(request, manner)
            except ClientError as failure:
                request = steps.throw(failure)
            else:
                request = steps.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result
