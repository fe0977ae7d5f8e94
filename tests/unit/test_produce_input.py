"""Goal: `kafkalog produce` sends a line when the input pauses, all that was read at Ctrl-C, and
counts an unknown outcome as nothing else.
Method: its input on a pipe and on a terminal; answers of a client of a few lines.
"""

from __future__ import annotations

import json
import os
import pty
import signal
from typing import TYPE_CHECKING, Any, cast

import click
import pytest

from kafkalog.cli import produce as module
from kafkalog.cli.produce import LineInput, Outcomes
from kafkalog.client import (
    BadAnswer,
    ClientError,
    ConnectFailed,
    DaemonFault,
    NoRoom,
    NotMadeDurable,
    OutcomeUnknown,
)
from kafkalog.client.messages import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from kafkalog.client import Client

NEVER = 1e6  # seconds


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Where lines are read from, and where they are written to."""
    reader, writer = os.pipe()
    before = signal.getsignal(signal.SIGINT)
    # As at a terminal: in the background of a script it is ignored, and stays so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield reader, writer
    signal.signal(signal.SIGINT, before)
    os.close(reader)


def test_a_pause_ends_a_group(pipe: tuple[int, int]) -> None:
    """The line's end has come, the input's has not."""
    reader, writer = pipe
    with LineInput(reader) as lines:
        groups = lines.groups()
        os.write(writer, b"a\nb\nhal")
        assert next(groups) == [b"a", b"b"]
        os.write(writer, b"f\n")
        assert next(groups) == [b"half"]
        os.write(writer, b"\nlast")
        os.close(writer)
        assert list(groups) == [[b"", b"last"]]
        assert not lines.has_part


def test_a_full_group_waits_for_nothing(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LINGER_SECONDS", NEVER)
    monkeypatch.setattr(module, "_BATCH_RECORDS", 2)
    reader, writer = pipe
    with LineInput(reader) as lines:
        os.write(writer, b"a\nb\nc\n")
        groups = lines.groups()
        assert next(groups) == [b"a", b"b"]
        os.close(writer)
        assert list(groups) == [[b"c"]]


def test_the_groups_of_a_file_do_not_depend_on_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine more than the linger passed between two reads, and a group ended there."""
    monkeypatch.setattr(module, "_LINGER_SECONDS", 0.0)
    file = tmp_path / "lines"
    file.write_bytes(b"a line that has about a hundred bytes%60d\n" % 7 * 2500)
    with file.open("rb") as text, LineInput(text.fileno()) as lines:
        assert [len(group) for group in lines.groups()] == [1000, 1000, 500]


def test_a_terminal_waits_for_no_second_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LINGER_SECONDS", NEVER)
    writer, reader = pty.openpty()
    with LineInput(reader) as lines:
        groups = lines.groups()
        os.write(writer, b"typed\n")
        assert next(groups) == [b"typed"]
        os.write(writer, b"\x04")  # Ctrl-D
        assert list(groups) == []
    os.close(writer)
    os.close(reader)


def test_an_interrupt_ends_the_input(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read comes out; a line that has only begun does not; what waits is not read."""
    monkeypatch.setattr(module, "_LINGER_SECONDS", NEVER)
    monkeypatch.setattr(module, "_BATCH_RECORDS", 2)
    reader, writer = pipe
    before = signal.getsignal(signal.SIGINT)
    with LineInput(reader) as lines:
        os.write(writer, b"a\nb\nc\nbegun")
        groups = lines.groups()
        assert next(groups) == [b"a", b"b"]
        os.write(writer, b" and ended\n")
        signal.raise_signal(signal.SIGINT)
        assert list(groups) == [[b"c"]]
        assert lines.is_interrupted
        assert lines.has_part
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    os.close(writer)


def test_where_interrupts_are_ignored_they_stay_so(pipe: tuple[int, int]) -> None:
    """As in the background of a script."""
    reader, writer = pipe
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with LineInput(reader) as lines:
            signal.raise_signal(signal.SIGINT)
            assert not lines.is_interrupted
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    os.close(writer)


def test_what_is_known_of_a_failure() -> None:
    """Only what certainly was not appended is called refused."""
    outcomes = Outcomes(appended=7)
    outcomes.fail(NoRoom("full", status=507, nothing_was_done=True), 1)
    outcomes.fail(ConnectFailed("nobody", nothing_was_done=True), 2)
    outcomes.fail(OutcomeUnknown("cut"), 4)
    outcomes.fail(NotMadeDurable("no sync", status=500), 8)
    outcomes.fail(BadAnswer("a proxy", status=502), 16)
    outcomes.fail(DaemonFault("a defect", status=500, body={"error_code": 50000}), 32)
    assert str(outcomes) == "Records appended: 7, refused: 3, unknown: 60"
    for code in (50010, 50101):  # of a log that cannot be appended to
        outcomes.fail(DaemonFault("unfit", status=code // 100, body={"error_code": code}), 64)
    assert str(outcomes) == "Records appended: 7, refused: 131, unknown: 60"
    assert str(Outcomes(2, is_answered=False)) == "Records sent: 2, refused: 0, unknown: 0"


class Answering:
    """A client that gives these answers, or raises them."""

    def __init__(self, *answers: bytes | BaseException) -> None:
        self._answers = list(answers)
        self.requests: list[tuple[str, Any]] = []

    def call(self, _method: str, path: str, body: Any, **_options: object) -> Answer:
        self.requests.append((path, body))
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return Answer(200, {}, answer)


def sender_of(client: Answering, partition: int | None = None, **receipts: bool) -> module._Sender:
    shown = module.Receipts("t", **receipts)
    return module._Sender(cast("Client", client), "t", partition, None, shown)


def test_receipts_are_counted_by_what_they_say() -> None:
    """50003: written and not synced, so it may be there; 42209 and 50701 were not appended."""
    receipt = '{"partition":0,"offset":%s,"error_code":%s,"error":"e%s"}'
    codes = ("null", "50003", "50701", "42209", "null")
    receipts = ",".join(receipt % (1, code, code) for code in codes)
    client = Answering(f'{{"offsets":[{receipts}]}}'.encode(), b"")
    sender = sender_of(client)
    assert sender.send([{"value": None}] * 5, range(1, 6))
    assert str(sender.outcomes) == "Records appended: 2, refused: 2, unknown: 1"
    assert sender.send([{"value": None}], [1])
    assert str(sender.outcomes) == "Records sent: 3, refused: 2, unknown: 1"


@pytest.mark.parametrize(
    ("error", "numbers", "stop"),
    [
        (NoRoom("full", status=507, nothing_was_done=True), range(4001, 5001),
         "Stopped at line 4001: no later line is in the topic. Go on with line 4001."),
        (OutcomeUnknown("cut"), range(4001, 5001),
         "Stopped after line 5000: no later line was sent. Go on with line 5001 if lines 4001 to "
         "5000 are in the topic, otherwise with the first of them that is not."),
        (OutcomeUnknown("cut"), [7],
         "Stopped after line 7: no later line was sent. Go on with line 8 if line 7 is in the "
         "topic, otherwise with line 7."),
        (NoRoom("full", status=507, nothing_was_done=True), [1], ""),
    ],
)  # fmt: skip
def test_the_line_to_go_on_with_is_named(
    error: ClientError, numbers: Sequence[int], stop: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What follows may be endless: it is neither read nor counted."""
    sender = sender_of(Answering(error))
    assert not sender.send([{"value": None}] * len(numbers), numbers)
    sender.report(None, False)
    said = capsys.readouterr().err.splitlines()
    *before, told, total = said if stop else [*said[:-1], "", said[-1]]
    assert told == stop
    assert total == str(sender.outcomes)
    if sender.outcomes.unknown:  # told before the advice to go on, which stands on it
        assert before[-1].startswith("It is not known whether line")


def test_unknown_lines_are_named_before_a_later_stop(capsys: pytest.CaptureFixture[str]) -> None:
    """A refusal says "go on with line 6": lines 2 and 4 to 5 before it may be missing."""
    fine, unsynced = '{"partition":0,"offset":0}', '{"error_code":50003,"error":"no sync"}'
    first = ",".join((fine, unsynced, fine, unsynced, unsynced))
    full = NoRoom("full", status=507, nothing_was_done=True)
    sender = sender_of(Answering(f'{{"offsets":[{first}]}}'.encode(), full))
    assert sender.send([{"value": None}] * 5, range(1, 6))
    assert not sender.send([{"value": None}] * 2, range(6, 8))
    sender.report(None, False)
    *_, unknown, stop, total = capsys.readouterr().err.splitlines()
    assert unknown == (
        "It is not known whether line 2 and lines 4 to 5 of the input are in the topic: look there "
        "before you send them again."
    )
    assert stop.endswith("Go on with line 6.")
    assert total == "Records appended: 2, refused: 2, unknown: 3"


def test_of_many_unknown_lines_the_first_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    fine, unsynced = '{"partition":0,"offset":0}', '{"error_code":50003,"error":"no sync"}'
    sender = sender_of(Answering(f'{{"offsets":[{",".join((fine, unsynced) * 20)}]}}'.encode()))
    assert sender.send([{"value": None}] * 40, range(1, 41))
    sender.report(None, False)
    unknown = capsys.readouterr().err.splitlines()[-2]
    assert "whether line 2, line 4, " in unknown
    assert "line 20 and later ones of the input are in the topic" in unknown


def test_the_line_that_is_too_large_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A blank line of JSONL is no record, and a line all the same."""
    fine, large = '{"partition":0,"offset":0}', '{"error_code":41301,"error":"exceeds"}'
    sender = sender_of(Answering(f'{{"offsets":[{fine},{large},{large}]}}'.encode()))
    groups = [[b'{"value":1}', b"", b'{"value":2}', b'{"value":3}']]
    for records, numbers in module._records(groups, module._parser(True, None)):
        assert sender.send(records, numbers)
    sender.report(None, False)
    said = capsys.readouterr().err
    assert "The first record that is too large is line 3." in said
    assert "kafkalog topics alter t --config max.message.bytes=BYTES" in said
    assert said.endswith("Records appended: 1, refused: 2, unknown: 0\n")


def test_what_cannot_be_printed_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader of ``-v`` has gone; the records are in the log all the same."""
    receipts = ",".join(f'{{"partition":0,"offset":{offset}}}' for offset in range(1000))
    sender = sender_of(Answering(f'{{"offsets":[{receipts}]}}'.encode()), has_places=True)

    def gone(*_: object, **_options: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(click, "echo", gone)
    with pytest.raises(BrokenPipeError):
        sender.send([{"value": None}] * 1000, range(1000))
    assert str(sender.outcomes) == "Records appended: 1000, refused: 0, unknown: 0"


def test_an_answer_that_is_none_and_an_interrupt_leave_it_open() -> None:
    sender = sender_of(Answering(b"<html>", KeyboardInterrupt()))
    assert not sender.send([{"value": None}], [1])
    with pytest.raises(KeyboardInterrupt):
        sender.send([{"value": None}] * 3, range(3))
    assert str(sender.outcomes) == "Records appended: 0, refused: 0, unknown: 4"


def test_a_line_of_json_for_each_record(capsys: pytest.CaptureFixture[str]) -> None:
    receipts = '{"partition":1,"offset":7},{"error_code":50701,"error":"full"}'
    answers = (f'{{"offsets":[{receipts}]}}'.encode(), b"", b"<html>", KeyboardInterrupt())
    sender = sender_of(Answering(*answers), is_json=True)
    for first in (1, 4, 6):
        sender.send([{"value": None}] * 2, [first, first + 1])
    with pytest.raises(KeyboardInterrupt):
        sender.send([{"value": None}], [8])
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert told[0] == {"line": 1, "outcome": "appended", "partition": 1, "offset": 7}
    assert told[1] == {"line": 2, "outcome": "refused", "error_code": 50701, "error": "full"}
    assert told[2] == {"line": 4, "outcome": "sent"}
    assert [(each["line"], each["outcome"]) for each in told[4:]] == [
        (6, "unknown"),
        (7, "unknown"),
        (8, "unknown"),
    ]


def test_the_option_decides_about_the_partition() -> None:
    client = Answering(b"")
    sender_of(client, 2).send([{"value": None, "partition": 1}], [1])
    assert client.requests == [("/topics/t/partitions/2", {"records": [{"value": None}]})]
