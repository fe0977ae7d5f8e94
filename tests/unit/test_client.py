"""Goal: the client sends again exactly what may be sent again, never reuses a sequence, builds
sound batches, and shows no secret.
Method: scripted answers in the place of a connection, and a clock that jumps.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pytest
from hypothesis import given, strategies as st

from kafkalog.client import (
    Basic,
    Bearer,
    Client,
    ConsumerRecord,
    ProducerIdentity,
    ProducerRecord,
    Tls,
    errors,
    path_of,
)
from kafkalog.client.batches import OutgoingRecords, consumer_records
from kafkalog.client.errors import ClientError, OutcomeUnknown, failure_of
from kafkalog.client.messages import (
    Address,
    Answer,
    EmptyName,
    NoAnswer,
    Repeat,
    Request,
    context_for,
)
from kafkalog.client.producer import ProducerState
from kafkalog.client.retry import (
    ONE_TRY,
    Effect,
    Outcome,
    Pause,
    Retries,
    RetryContext,
    may_repeat,
    pause_seconds,
    send_with_retries,
    with_retries,
)
from kafkalog.format.records.control_record import ControlRecordType, build_end_transaction_marker
from kafkalog.format.records.record_batch import is_crc_valid, read_header
from kafkalog.server.protocol.errors import REGISTER
from tests.integration.daemon import ROOT

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
    found = failure_of(outcome, ADDRESS)
    assert found is not None
    return found


class Clock:
    """Moved by the pauses and by the test."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def retry_context(retries: Retries | None = None, clock: Clock | None = None) -> RetryContext:
    """Chance that takes the whole pause."""
    return RetryContext(ADDRESS, retries or Retries(), clock or Clock(), lambda: 1.0)


def play(
    request: Request, *outcomes: Answer | NoAnswer, retries: Retries | None = None
) -> tuple[Answer | ClientError, list[float]]:
    """(answer or error, pauses) of a request whose tries come to these outcomes."""
    clock, left = Clock(), list(outcomes)
    pauses: list[float] = []
    effects: Generator[Effect, Outcome, Answer] = send_with_retries(
        request, retry_context(retries, clock)
    )
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
    for request, first, nothing_was_done in (
        (IDEMPOTENT, GONE, False),
        (IDEMPOTENT, REFUSED, True),
        (READ, GONE, True),
    ):
        denied, _ = play(request, first, error(40301))
        assert isinstance(denied, errors.AccessDenied)
        assert denied.nothing_was_done is nothing_was_done


def test_the_deadline_counts_from_the_first_failure() -> None:
    clock = Clock()
    effects = send_with_retries(READ, retry_context(clock=clock))
    assert next(effects) is READ
    clock.seconds = 60.0
    assert effects.send(GONE) == Pause(0.05)
    assert effects.send(None) is READ
    clock.seconds = 89.0
    assert isinstance(effects.send(GONE), Pause)


def test_a_start_has_a_deadline_of_its_own() -> None:
    """The daemon says that it loads its logs: a caller of one try waits for that alone."""
    told: list[float] = []
    retries = Retries(0, starting_seconds=60, on_waiting=lambda _, seconds: told.append(seconds))
    starting = error(50304, details={"phase": "starting"}, retry_after="20")
    assert play(APPEND, starting, starting, DONE, retries=retries) == (DONE, [20.0, 20.0])
    assert told == [60, 60]
    for outcomes in ([starting] * 4, [starting, error(50304)]):
        raised, _ = play(APPEND, *outcomes, retries=retries)
        assert isinstance(raised, errors.Unavailable)
        assert raised.is_starting is (len(outcomes) == 4)


def test_a_port_that_is_not_open_has_a_deadline_of_its_own() -> None:
    """A caller of one try waits for it, then for the start; never for another failure."""
    told: list[float] = []
    retries = Retries(
        0,
        backoff_seconds_max=0.5,
        starting_seconds=60,
        no_daemon_seconds=5,
        on_waiting=lambda _, seconds: told.append(seconds),
    )
    closed = NoAnswer("Connection refused", was_sent=False, may_be_down=True)
    starting = error(50304, details={"phase": "starting"}, retry_after="20")
    answer, _ = play(APPEND, closed, closed, starting, DONE, retries=retries)
    assert (answer, told) == (DONE, [5, 5, 60])
    raised, pauses = play(APPEND, *[closed] * 13, retries=retries)
    assert isinstance(raised, errors.ConnectFailed)
    assert sum(pauses) == pytest.approx(4.75)
    hopeless = NoAnswer("no such host", was_sent=False)
    for other in (hopeless, GONE, error(50304)):
        raised, pauses = play(APPEND, other, retries=retries)
        assert (isinstance(raised, ClientError), pauses) == (True, [])


def test_a_daemon_that_is_about_to_open_its_port_is_waited_for() -> None:
    """As long as it can be seen; the time of its start counts from its first answer."""
    told: list[float] = []
    seen = [180.0] * 40
    retries = Retries(
        0,
        backoff_seconds_max=0.5,
        starting_seconds=30,
        no_daemon_seconds=5,
        opening_seconds=lambda: seen.pop() if seen else 0.0,
        on_waiting=lambda _, seconds: told.append(seconds),
    )
    closed = NoAnswer("Connection refused", was_sent=False, may_be_down=True)
    raised, pauses = play(APPEND, *[closed] * 41, retries=retries)
    assert isinstance(raised, errors.ConnectFailed)
    assert sum(pauses) == pytest.approx(18.75)
    assert set(told) == {180.0}
    seen[:] = [180.0] * 80
    starting = error(50304, details={"phase": "starting"}, retry_after="20")
    answer, pauses = play(APPEND, *[closed] * 80, starting, DONE, retries=retries)
    assert (answer, sum(pauses) > 30 + 20) == (DONE, True)
    seen[:] = [180.0] * 80
    raised, pauses = play(APPEND, *[closed] * 80, starting, starting, retries=retries)
    assert isinstance(raised, errors.Unavailable)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {
                "checks": {"not_stopping": True},
                "loading": {"partitions_loaded": 3, "partitions": 9},
            },
            "it is starting, 3 of 9 partitions are loaded",
        ),
        ({"checks": {"not_stopping": False}, "loading": None}, "it is stopping"),
        ({"checks": {}, "loading": None, "start_refused": "No."}, "No"),
        ({"checks": {}, "loading": None, "start_refused": None}, "no log directory is online"),
    ],
)
def test_a_probe_that_fails_says_why(body: dict[str, Any], message: str) -> None:
    answer = Answer(503, {}, json.dumps({"status": "not ready", **body}).encode())
    raised = failure(answer)
    assert raised.message == f"The daemon is not ready: {message}."
    assert raised.is_starting is ("starting" in message)
    assert not raised.retriable


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            {"status": "not ready", "checks": [{"name": "db"}]},
            "The daemon is not ready: no log directory is online.",
        ),
        (
            {"status": "not ready", "loading": True},
            "The daemon is not ready: no log directory is online.",
        ),
        (
            {"status": "not ready", "loading": {"partitions": 9}},
            "The daemon is not ready: it is starting, ? of 9 partitions are loaded.",
        ),
        ({"message": "x", "error_code": 50304, "retriable": True, "details": ["a"]}, "x"),
        (
            {"message": "x", "error_code": 50399, "kafka_error": ["a"]},
            f"What answers at {ADDRESS} is not kafkalog (status 503): is the address right?",
        ),
    ],
)
def test_the_like_of_another_server_is_an_error_too(body: dict[str, Any], message: str) -> None:
    """A field of another type than the daemon's is as if it were not there."""
    raised = failure(Answer(503, {}, json.dumps(body).encode()))
    assert raised.message == message
    assert raised.is_starting is ("starting" in message)


def test_an_operation_may_catch_its_failure() -> None:
    def steps() -> Steps[str]:
        try:
            yield READ
        except errors.UnknownTopic:
            answer = yield IDEMPOTENT
            return f"made: {answer.status}"
        raise AssertionError

    effects = with_retries(steps(), retry_context())
    assert next(effects) is READ
    assert effects.send(error(40401)) is IDEMPOTENT
    with pytest.raises(StopIteration) as end:
        effects.send(DONE)
    assert end.value.value == "made: 200"


NOW_MS = 1_700_000_000_000
FIELDS = st.none() | st.binary(max_size=40) | st.text(max_size=20)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
RECORDS = st.builds(
    ProducerRecord,
    FIELDS,
    FIELDS,
    st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=9)), max_size=3).map(tuple),
    st.none() | st.integers(0, 2**62),
)


def stored(field: bytes | str | None) -> bytes | None:
    """What is kept of a field."""
    return field.encode() if isinstance(field, str) else field


@given(st.lists(RECORDS, min_size=1, max_size=20), st.sampled_from(["none", "gzip", "zstd"]))
def test_there_and_back(records: list[ProducerRecord], codec: str) -> None:
    outgoing = OutgoingRecords(records, NOW_MS)
    batch = outgoing.batch(outgoing.all_rows(), codec, 7, 1, 40)  # type: ignore[arg-type] # a name
    header = read_header(batch)
    assert is_crc_valid(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 40)
    assert header.record_count == len(records)
    assert consumer_records("t", 3, batch, 0) == [
        ConsumerRecord(
            "t",
            3,
            offset,
            NOW_MS if record.timestamp_ms is None else record.timestamp_ms,
            stored(record.key),
            stored(record.value),
            record.headers,
        )
        for offset, record in enumerate(records)
    ]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=40), st.integers(1, 1000), st.data())
def test_slices_are_whole_and_bounded(
    lengths: list[int], batch_bytes: int, data: st.DataObject
) -> None:
    outgoing = OutgoingRecords([ProducerRecord(b"x" * n) for n in lengths], NOW_MS)
    kept = data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
    rows = np.flatnonzero(kept)
    slices = [part.tolist() for part in outgoing.slices(rows, batch_bytes)]
    assert list(itertools.chain.from_iterable(slices)) == rows.tolist()
    for part in slices:
        assert part
        assert len(part) == 1 or sum(lengths[row] + 24 for row in part) <= batch_bytes
    sizes = [sum(lengths[row] + 24 for row in part) for part in slices]
    for size, following in itertools.pairwise(zip(sizes, slices, strict=True)):
        assert size[0] + lengths[following[1][0]] + 24 > batch_bytes, "a batch ended too early"


def test_partitions_as_java_chooses_them() -> None:
    """Known answers of Java's murmur2; null keys go together, to one that is served."""
    keys = ["k1", "k2", None, "k3", None, ""]
    outgoing = OutgoingRecords([ProducerRecord("v", key=key) for key in keys], NOW_MS)
    chosen = {p: rows.tolist() for p, rows in outgoing.by_partition(4, [1, 3], 0.99)}
    again = {p: rows.tolist() for p, rows in outgoing.by_partition(4, [1, 3], 0.0)}
    assert {2, 4} <= set(chosen[3])
    assert {2, 4} <= set(again[1])
    assert sorted(itertools.chain.from_iterable(chosen.values())) == list(range(6))
    for rows in chosen.values():
        assert rows == sorted(rows)
    nobody = {p: rows.tolist() for p, rows in outgoing.by_partition(4, [], 0.6)}
    assert {2, 4} <= set(nobody[2])


def test_control_records_and_what_lies_before_are_left_out() -> None:
    outgoing = OutgoingRecords([ProducerRecord(str(n)) for n in range(3)], NOW_MS)
    batch = outgoing.batch(outgoing.all_rows(), "none")
    marker = build_end_transaction_marker(
        1, 0, 0, ControlRecordType.COMMIT, timestamp_ms=NOW_MS, base_offset=3
    )
    read = consumer_records("t", 0, batch + marker, 1)
    assert [(record.offset, record.value) for record in read] == [(1, b"1"), (2, b"2")]
    assert consumer_records("t", 0, batch, 3) == []
    assert consumer_records("t", 0, b"", 0) == []


@given(st.data())
def test_broken_bytes_are_told(data: st.DataObject) -> None:
    outgoing = OutgoingRecords([ProducerRecord("value", key="key")] * 3, NOW_MS)
    batch = outgoing.batch(outgoing.all_rows(), "none")
    bit = data.draw(st.integers(16 * 8, len(batch) * 8 - 1))
    flipped = bytearray(batch)
    flipped[bit // 8] ^= 1 << bit % 8
    with pytest.raises(errors.BadAnswer, match="arrived corrupt"):
        consumer_records("t", 0, bytes(flipped), 0)
    with pytest.raises(errors.BadAnswer, match="arrived corrupt"):
        consumer_records("t", 0, batch + batch[: data.draw(st.integers(1, len(batch) - 1))], 0)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("localhost", "http://localhost:8082"),
        ("localhost:1", "http://localhost:1"),
        ("https://logs.example/", "https://logs.example:8082"),
        ("http://[::1]:5", "http://[::1]:5"),
    ],
)
def test_an_address(url: str, shown: str) -> None:
    assert str(Address.of(url)) == shown


@pytest.mark.parametrize(
    "url",
    ["", "ftp://x", "http://", "http://x:99999", "http://[::1", "http://x/v3", "http://u:p@x",
     "http://x?a=b"],
)  # fmt: skip
def test_no_address(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Address.of(url)


def test_names_become_segments() -> None:
    assert path_of("v1", "topics", "a/b?c#d%", 0) == "/v1/topics/a%2Fb%3Fc%23d%25/0"
    assert path_of("cleaner:run") == "/cleaner:run"
    with pytest.raises(EmptyName):
        path_of("topics", "")
    assert Request("GET", "/a", {"at": "2026-01-01T00:00:00+01:00"}).target == (
        "/a?at=2026-01-01T00%3A00%3A00%2B01%3A00"
    )


def test_secrets_are_not_shown() -> None:
    basic, bearer = Basic("alice", "hush-hush"), Bearer("t0ken")
    assert basic.authorization() == "Basic YWxpY2U6aHVzaC1odXNo"
    assert bearer.authorization() == "Bearer t0ken"
    assert "hush" not in repr(basic)
    assert "t0ken" not in repr(bearer)
    for bad in ("s3cret\r\nX-Evil: 1", "", " ", "s3crét"):
        with pytest.raises(ValueError, match="printable ASCII") as refused:
            Bearer(bad)
        assert "s3cr" not in str(refused.value)
    with pytest.raises(ValueError, match="colon"):
        Basic("a:b", "c")


def test_tls_and_plain_http_do_not_mix() -> None:
    assert context_for(Address.of("http://x"), None) is None
    assert context_for(Address.of("https://x"), None) is not None
    with pytest.raises(ValueError, match="https"):
        context_for(Address.of("http://x"), Tls())
    with pytest.raises(ValueError, match="certificate"):
        context_for(Address.of("https://x"), Tls(key_file="k"))
    with pytest.raises(OSError, match="No such file"):
        Client("https://x", tls=Tls(ca_file="/no/such/file"))


def test_what_an_import_brings() -> None:
    """`kafkalog --help` and `topics list` are quick: no kernel, numpy, aiohttp or pydantic."""
    heavy = ("numba", "numpy", "aiohttp", "pydantic", "structlog", "cramjam", "crc32c", "asyncio")
    code = (
        "import click, sys, kafkalog.__main__\n"
        "root = kafkalog.__main__.root_command()\n"
        "assert 'doctor' in root.get_help(click.Context(root))\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


T = TypeVar("T")
NOT_APPENDED: dict[str, Answer | NoAnswer] = {
    "refused": REFUSED,
    "vanished": GONE,
    "unavailable": error(50304),
    "denied": error(40301),
}


class Partition:
    """Keeps what was appended by the rules of idempotence, for one producer id."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.next_sequence = 0
        self.batches: dict[int, int] = {}  # base sequence -> base offset

    def append(self, batch: bytes) -> Answer:
        """As the daemon: a known sequence again is a duplicate, another one than the next a gap."""
        header = read_header(batch)
        is_duplicate = header.base_sequence in self.batches
        if not is_duplicate:
            if header.base_sequence != self.next_sequence:
                return error(40905)
            self.batches[header.base_sequence] = len(self.values)
            self.next_sequence += header.record_count
            self.values += [r.value or b"" for r in consumer_records("t", 0, batch, 0)]
        base = self.batches[header.base_sequence]
        answer = {
            "base_offset": base,
            "last_offset": base + header.record_count - 1,
            "log_append_time": -1,
            "log_start_offset": 0,
            "duplicate": is_duplicate,
        }
        return Answer(200, {"kafka-durability": "os"}, json.dumps(answer).encode())


def play_producer(steps: Steps[T], partition: Partition, fates: list[str]) -> T:
    """Each request meets the next fate: done, lost (appended, no answer), or an error before."""
    try:
        request: Request = next(steps)
        while True:
            outcome = meet(request, partition, fates.pop(0) if fates else "done")
            failure = failure_of(outcome, "there")
            if failure is not None:
                request = steps.throw(failure)
            else:
                assert isinstance(outcome, Answer)
                request = steps.send(outcome)
    except StopIteration as end:
        result: T = end.value
        return result


def meet(request: Request, partition: Partition, fate: str) -> Answer | NoAnswer:
    """What one request comes to."""
    assert request.body is not None
    if fate in NOT_APPENDED:
        return NOT_APPENDED[fate]
    answer = partition.append(request.body)
    return GONE if fate == "lost" else answer


def producer() -> ProducerState:
    """With an id, so that it asks for none."""
    return ProducerState(ProducerIdentity(5, 0), acks="1")


def record(value: str) -> list[ProducerRecord]:
    return [ProducerRecord(value)]


def test_sequences_go_on_after_what_was_appended() -> None:
    state, partition = producer(), Partition()
    play_producer(state.send("t", [*record("a"), *record("b")], partition=0), partition, [])
    for fate, kind in (("refused", errors.ConnectFailed), ("unavailable", errors.Unavailable)):
        with pytest.raises(kind):
            play_producer(state.send("t", record("never"), partition=0), partition, [fate])
        assert state.unanswered == []
    play_producer(state.send("t", record("c"), partition=0), partition, [])
    with pytest.raises(OutcomeUnknown):
        play_producer(state.send("t", record("d"), partition=0), partition, ["lost"])
    assert state.unanswered == [("t", 0)]
    with pytest.raises(OutcomeUnknown, match="resend it first"):
        play_producer(state.send("t", record("e"), partition=0), partition, [])
    receipt = play_producer(state.resend("t", 0), partition, [])
    assert receipt is not None
    assert (receipt.base_offset, receipt.is_duplicate) == (3, True)
    play_producer(state.send("t", record("e"), partition=0), partition, [])
    assert partition.values == [b"a", b"b", b"c", b"d", b"e"]


def test_an_interrupted_call_leaves_its_batch_open() -> None:
    """Ctrl-C or a cancelled task between request and answer."""
    state, partition = producer(), Partition()
    steps = state.send("t", record("a"), partition=0)
    request = next(steps)
    assert request.body is not None
    partition.append(request.body)
    steps.close()
    assert state.unanswered == [("t", 0)]
    play_producer(state.resend("t", 0), partition, [])
    play_producer(state.send("t", record("b"), partition=0), partition, [])
    assert partition.values == [b"a", b"b"]


def test_a_gap_ends_the_producer() -> None:
    state, partition = producer(), Partition()
    partition.next_sequence = 9
    with pytest.raises(errors.OutOfOrderSequence):
        play_producer(state.send("t", record("a"), partition=0), partition, [])
    for again in (state.send("t", record("b"), partition=1), state.resend("t", 0)):
        with pytest.raises(errors.OutOfOrderSequence, match="finished") as finished:
            play_producer(again, partition, [])
        assert finished.value.nothing_was_done


@given(
    st.lists(
        st.sampled_from(["done", "lost", "vanished", "refused", "unavailable", "denied"]),
        max_size=40,
    )
)
def test_nothing_twice_and_nothing_lost(fates: list[str]) -> None:
    state, partition = producer(), Partition()
    wanted = [f"v{number}" for number in range(8)]
    for value in wanted:
        is_sent = False
        while not is_sent:
            try:
                if state.unanswered:
                    play_producer(state.resend("t", 0), partition, fates)
                else:
                    play_producer(state.send("t", record(value), partition=0), partition, fates)
                is_sent = True
            except ClientError:
                continue
    assert partition.values == [value.encode() for value in wanted]
