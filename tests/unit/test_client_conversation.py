"""Goal: a request is sent again exactly when the table of `client/retry.py` says so.
Method: the pure core played by hand: outcomes in, requests and pauses out; a clock that stands
where the test puts it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.client import errors
from kafkalog.client.errors import ClientError, OutcomeUnknown, failure_of
from kafkalog.client.messages import Answer, NoAnswer, Repeat, Request
from kafkalog.client.retry import (
    ONE_TRY,
    Effect,
    Manner,
    Outcome,
    Pause,
    Retries,
    exchange,
    may_repeat,
    pause_seconds,
    played,
)
from kafkalog.server.protocol.errors import REGISTER

if TYPE_CHECKING:
    from collections.abc import Generator

    from kafkalog.client.retry import Steps

ADDRESS = "http://there:1"
GONE = NoAnswer("Connection reset by peer", was_sent=True)
REFUSED = NoAnswer("Connection refused", was_sent=False)
NOT_BELIEVED = NoAnswer("certificate verify failed", was_sent=False, is_hopeless=True)
DONE = Answer(200, {}, b"{}")
APPEND = Request("POST", "/", repeat=Repeat.IF_NOTHING_WAS_DONE)
IDEMPOTENT = Request("POST", "/", repeat=Repeat.ALWAYS)
READ = Request("GET", "/")


def error(code: int, *, retry_after: str = "", **more: Any) -> Answer:
    """The daemon's error of a number, as its register has it."""
    row = REGISTER[code]
    body = {
        "error_code": code,
        "message": row.meaning,
        "kafka_error": row.kafka_error,
        "retriable": row.retriable,
        **more,
    }
    headers = {"retry-after": retry_after} if retry_after else {}
    return Answer(row.status, headers, json.dumps(body).encode())


def failure(outcome: Answer | NoAnswer) -> ClientError:
    """What it is raised as."""
    found = failure_of(outcome, ADDRESS)
    assert found is not None
    return found


class Clock:
    """Moved by the pauses and by the test."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def manner(retries: Retries | None = None, clock: Clock | None = None) -> Manner:
    """Chance that takes the whole pause."""
    return Manner(ADDRESS, retries or Retries(), clock or Clock(), lambda: 1.0)


def play(
    request: Request, *outcomes: Answer | NoAnswer, retries: Retries | None = None
) -> tuple[Answer | ClientError, list[float]]:
    """(answer or error, pauses) of a request whose tries come to these outcomes."""
    clock, left = Clock(), list(outcomes)
    pauses: list[float] = []
    effects: Generator[Effect, Outcome, Answer] = exchange(request, manner(retries, clock))
    outcome: Outcome = None
    while True:
        try:
            effect = effects.send(outcome)
        except StopIteration as end:
            assert not left
            answer: Answer = end.value
            return answer, pauses
        except ClientError as raised:
            assert not left
            return raised, pauses
        if isinstance(effect, Pause):
            pauses.append(effect.seconds)
            clock.seconds += effect.seconds
            outcome = None
        else:
            assert effect is request
            outcome = left.pop(0)


ROWS = [
    # outcome, repeated always, repeated if nothing was done, kind
    (REFUSED, True, True, errors.ConnectFailed),
    (NOT_BELIEVED, False, False, errors.ConnectFailed),
    (GONE, True, False, errors.OutcomeUnknown),
    (error(42902), True, True, errors.Throttled),
    (error(42901), True, True, errors.Throttled),
    (error(50304), True, True, errors.Unavailable),
    (error(50303), True, True, errors.Unavailable),
    (error(50003), True, False, errors.NotMadeDurable),
    (error(50000), False, False, errors.DaemonFault),
    (error(50010), False, False, errors.DaemonFault),
    (error(50701), False, False, errors.DiskFull),
    (error(50702), False, False, errors.QuotaExceeded),
    (error(40905), False, False, errors.OutOfOrderSequence),
    (error(40906), False, False, errors.ProducerFenced),
    (error(40908), False, False, errors.InvalidTxnState),
    (error(41201), False, False, errors.ExpectedOffsetMismatch),
    (error(41001), False, False, errors.OffsetBelowLogStart),
    (error(41601), False, False, errors.OffsetAboveLogEnd),
    (error(41301), False, False, errors.TooLarge),
    (error(42209), False, False, errors.InvalidRecord),
    (error(40401), False, False, errors.UnknownTopic),
    (error(40402), False, False, errors.UnknownPartition),
    (error(40101), False, False, errors.NotAuthenticated),
    (error(40301), False, False, errors.AccessDenied),
    (error(408), False, False, errors.InvalidRequest),
    (Answer(503, {}, b"<html>gateway</html>"), False, False, errors.BadAnswer),
    (Answer(502, {}, b""), False, False, errors.BadAnswer),
    (Answer(301, {"location": "/"}, b""), False, False, errors.BadAnswer),
]


@pytest.mark.parametrize(("outcome", "always", "if_nothing", "kind"), ROWS)
def test_the_table(
    outcome: Answer | NoAnswer, always: bool, if_nothing: bool, kind: type[ClientError]
) -> None:
    """Each row once; an append is repeated only where it was certainly not made."""
    found = failure(outcome)
    assert type(found) is kind
    assert may_repeat(Repeat.ALWAYS, found) is always
    assert may_repeat(Repeat.IF_NOTHING_WAS_DONE, found) is if_nothing
    assert not if_nothing or found.nothing_was_done


def test_every_number_of_the_register_is_told() -> None:
    """The promise of 429, 503 and 507 is believed, that of 500 never; no number falls through."""
    for code, row in REGISTER.items():
        found = failure(error(code))
        assert found.error_code == code
        assert found.kafka_error
        assert found.retriable is row.retriable
        assert found.nothing_was_done is (row.status < 500 or row.status in (503, 507))
        assert isinstance(found, errors.Refused | errors.OutcomeUnknown)


def test_what_an_error_carries() -> None:
    raised = failure(error(41001, details={"log_start_offset": 7}, request_id="r-1"))
    assert raised.details == {"log_start_offset": 7}
    assert (raised.status, raised.error_code, raised.request_id) == (410, 41001, "r-1")
    assert raised.kafka_error == "OFFSET_OUT_OF_RANGE"
    assert str(raised) == raised.message
    exists = Answer(
        400, {}, b'{"error_code": 40002, "message": "m", "kafka_error": "TOPIC_ALREADY_EXISTS"}'
    )
    assert isinstance(failure(exists), errors.TopicExists)
    entry = errors.entry_failure({"error_code": 50303, "error": "off"})
    assert isinstance(entry, errors.Unavailable)
    assert errors.entry_failure({"low_watermark": 3}) is None
    assert failure_of(DONE, ADDRESS) is None


def test_pauses_double_and_obey_the_daemon() -> None:
    """0.05, 0.1, ... up to 2 s; Retry-After is the least; chance takes up to half of it."""
    busy, retries = failure(error(42902)), Retries()
    doubled = [pause_seconds(retries, busy, tries, 0, 1.0) for tries in range(1, 9)]
    assert doubled == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert pause_seconds(retries, busy, 9999, 0, 1.0) == 2.0
    assert pause_seconds(retries, busy, 1, 0, 0.0) == 0.025
    told = failure(error(42902, retry_after="3"))
    assert pause_seconds(retries, told, 1, 0, 0.0) == 3.0
    assert pause_seconds(retries, told, 1, 27.0, 0.0) == 3.0
    assert pause_seconds(retries, told, 1, 27.1, 0.0) is None
    assert pause_seconds(ONE_TRY, busy, 1, 0, 0.0) is None
    for odd in ("soon", "-1", "Wed, 21 Oct 2026 07:28:00 GMT", "१"):
        assert failure(error(42902, retry_after=odd)).retry_after_seconds == 0


def test_tries_end_with_the_answer_or_the_deadline() -> None:
    assert play(READ, GONE, REFUSED, error(50304), DONE) == (DONE, [0.05, 0.1, 0.2])
    raised, pauses = play(READ, *[REFUSED] * 20)
    assert isinstance(raised, errors.ConnectFailed)
    assert sum(pauses) <= 30 < sum(pauses) + 2
    raised, pauses = play(READ, GONE, retries=ONE_TRY)
    assert (type(raised), pauses) == (OutcomeUnknown, [])
    assert "No answer from http://there:1: Connection reset by peer." in str(raised)


def test_an_append_is_not_repeated_when_it_may_be_there() -> None:
    """Once without an answer is the end; refusals before do no harm."""
    for unknown in (GONE, error(50003)):
        raised, pauses = play(APPEND, REFUSED, error(42902), unknown)
        assert isinstance(raised, OutcomeUnknown)
        assert not raised.nothing_was_done
        assert len(pauses) == 2


def test_a_refusal_says_nothing_of_an_earlier_try() -> None:
    """An idempotent append that had no answer, then 503 to the deadline: its fate stays open."""
    raised, _ = play(IDEMPOTENT, GONE, *[error(50304, retry_after="20")] * 2)
    assert type(raised) is OutcomeUnknown
    assert not raised.nothing_was_done
    assert isinstance(raised.__cause__, errors.Unavailable)
    assert "Connection reset by peer" in str(raised)
    denied, _ = play(IDEMPOTENT, GONE, error(40301))
    assert isinstance(denied, errors.AccessDenied)
    assert not denied.nothing_was_done
    never_sent, _ = play(IDEMPOTENT, REFUSED, error(40301))
    assert isinstance(never_sent, ClientError)
    assert never_sent.nothing_was_done
    read, _ = play(READ, GONE, error(40301))
    assert isinstance(read, errors.AccessDenied)
    assert read.nothing_was_done


def test_the_deadline_counts_from_the_first_failure() -> None:
    """A long poll that breaks after a minute is begun again."""
    clock = Clock()
    effects = exchange(READ, manner(clock=clock))
    assert next(effects) is READ
    clock.seconds = 60.0
    assert effects.send(GONE) == Pause(0.05)
    assert effects.send(None) is READ
    clock.seconds = 89.0
    assert isinstance(effects.send(GONE), Pause)


def test_an_operation_may_catch_its_failure() -> None:
    """Failures are raised inside the steps, which may go on; other exceptions pass."""

    def steps() -> Steps[str]:
        try:
            yield READ
        except errors.UnknownTopic:
            answer = yield IDEMPOTENT
            return f"made: {answer.status}"
        raise AssertionError

    effects = played(steps(), manner())
    assert next(effects) is READ
    assert effects.send(error(40401)) is IDEMPOTENT
    with pytest.raises(StopIteration) as end:
        effects.send(DONE)
    assert end.value.value == "made: 200"

    def broken() -> Steps[None]:
        yield READ
        raise KeyError("ours")

    effects_of_broken = played(broken(), manner())
    next(effects_of_broken)
    with pytest.raises(KeyError):
        effects_of_broken.send(DONE)

    def nothing_to_ask() -> Steps[int]:
        yield from ()
        return 5

    with pytest.raises(StopIteration) as at_once:
        next(played(nothing_to_ask(), manner()))
    assert at_once.value.value == 5
