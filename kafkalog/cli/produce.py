"""``kafkalog produce``: lines of standard input (or JSONL) become records of a topic.

Lines that arrive together are sent together, at most _BATCH_RECORDS or about _BATCH_BYTES; no line
waits longer than _LINGER_SECONDS for others, on a terminal not at all. A file never pauses: what is
sent together does not depend on how busy the machine is. The first Ctrl-C ends the
input as its end does: what was read is sent and answered. A second one waits for no answer.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import click

from kafkalog.cli.arguments import acks_option, topic_argument
from kafkalog.cli.connection import PARTIAL_FAILURE, message_of, with_client
from kafkalog.cli.output import base64_text, progress
from kafkalog.client import ClientError, path_of
from kafkalog.client.errors import document_of, entry_failure, was_not_appended
from kafkalog.client.messages import BINARY, given

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kafkalog.client import Client

_BATCH_RECORDS = 1000
_BATCH_BYTES = 512 << 10
_LINGER_SECONDS = 0.1
_READ_BYTES = 64 << 10
_RANGES_SHOWN = 10
_INTERRUPTED = "Interrupted before the answer."
_TOO_LARGE = 41301  # for the topic's max.message.bytes

_ApiRecord = dict[str, Any]  # of the binary format of the HTTP API


# ---- the input


class LineInput:
    """Lines of a file descriptor. While it is entered, Ctrl-C ends them."""

    def __init__(self, descriptor: int) -> None:
        # constant after construction
        self._descriptor = descriptor
        self._wake = os.eventfd(0)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        self._linger_seconds = 0.0 if os.isatty(descriptor) else _LINGER_SECONDS
        # changed by reading
        self.is_interrupted = False
        self._is_at_end = False
        self._parts: list[bytes] = []  # of the line that has begun

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:  # as in the background of a script
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)
        os.close(self._wake)

    def _interrupt(self, *_: object) -> None:
        if self.is_interrupted:
            raise KeyboardInterrupt
        self.is_interrupted = True
        os.eventfd_write(self._wake, 1)

    @property
    def has_part(self) -> bool:
        """Whether a line had begun when an interrupt ended the input; it is in no group."""
        return bool(self._parts)

    def groups(self) -> Iterator[list[bytes]]:
        """Lines without their ends, grouped as the module says; no group is empty."""
        group: list[bytes] = []
        size, deadline = 0, math.inf
        while (lines := self._more(deadline)) is not None:
            for line in lines:
                if not group:
                    deadline = time.monotonic() + self._linger_seconds
                group.append(line)
                size += len(line)
                if len(group) >= _BATCH_RECORDS or size >= _BATCH_BYTES:
                    yield group
                    group, size, deadline = [], 0, math.inf
            if group and not lines and time.monotonic() >= deadline:  # more input fills it at once
                yield group
                group, size, deadline = [], 0, math.inf
        if group:
            yield group

    def _more(self, deadline: float) -> list[bytes] | None:
        """Lines that arrive before the deadline, maybe none; None at the end."""
        if self._is_at_end:
            return None
        wait_ms = None
        if deadline != math.inf:
            wait_ms = max(math.ceil((deadline - time.monotonic()) * 1000), 0)
        ready = {number for number, _ in self._poll.poll(wait_ms)}
        if self._wake in ready:
            return None
        if not ready:
            return []
        data = os.read(self._descriptor, _READ_BYTES)
        if not data:
            self._is_at_end = True
            last, self._parts = b"".join(self._parts), []
            return [last] if last else []
        *lines, part = data.split(b"\n")
        if lines and self._parts:
            lines[0], self._parts = b"".join((*self._parts, lines[0])), []
        if part:
            self._parts.append(part)
        return lines


class _BadLine(Exception):
    """A line of the input that is not a record; the message names its number."""

    def __init__(self, number: int, error: ValueError) -> None:
        super().__init__(f"Line {number} {error}")
        self.number = number


def _parser(is_jsonl: bool, key_separator: bytes | None) -> Callable[[bytes], _ApiRecord | None]:
    """The function that makes a record of a line; None of one to skip. It raises ValueError."""
    if is_jsonl:
        from kafkalog.format.wire.readable import parse_record_line  # late: not for plain lines

        def from_json(line: bytes) -> _ApiRecord | None:
            if not line.strip():
                return None
            found = parse_record_line(line)
            record: _ApiRecord = given(partition=found.partition, timestamp=found.timestamp)
            if found.headers:
                record["headers"] = [
                    {"key": name, "value": base64_text(value)} for name, value in found.headers
                ]
            return {"key": base64_text(found.key), "value": base64_text(found.value), **record}

        return from_json

    def from_text(line: bytes) -> _ApiRecord:
        if key_separator is None:
            return {"value": base64_text(line)}
        key, separator, value = line.partition(key_separator)
        if not separator:
            start = line[:80].decode("latin-1")
            raise ValueError(f"has no key separator '{key_separator.decode()}': {start}")
        return {"key": base64_text(key), "value": base64_text(value)}

    return from_text


def _records(
    groups: Iterable[list[bytes]], parse: Callable[[bytes], _ApiRecord | None]
) -> Iterator[tuple[list[_ApiRecord], list[int]]]:
    """The records of each group, and the numbers of their lines.

    Raises _BadLine at the first line that is none, after all before it.
    """
    number = 0
    for group in groups:
        records: list[_ApiRecord] = []
        numbers: list[int] = []
        for line in group:
            number += 1
            try:
                record = parse(line)
            except ValueError as error:
                if records:
                    yield records, numbers
                raise _BadLine(number, error) from error
            if record is not None:
                records.append(record)
                numbers.append(number)
        if records:
            yield records, numbers


# ---- the appends


@dataclass(slots=True)
class Outcomes:
    """How many records are in the log, how many are not, and of how many it is not known."""

    appended: int = 0
    refused: int = 0
    unknown: int = 0
    is_answered: bool = True  # False with acks=0: they were sent
    reasons: Counter[str] = field(default_factory=Counter)

    def fail(self, error: ClientError, count: int) -> None:
        """Count records whose append failed."""
        self.reasons[message_of(error)] += count
        if was_not_appended(error):
            self.refused += count
        else:
            self.unknown += count

    def __str__(self) -> str:
        verb = "appended" if self.is_answered else "sent"
        return f"Records {verb}: {self.appended}, refused: {self.refused}, unknown: {self.unknown}"


class Receipts:
    """What standard output gets of each record: nothing, its place, or its outcome as JSON."""

    def __init__(self, topic: str, *, has_places: bool = False, is_json: bool = False) -> None:
        self._topic, self._has_places, self._is_json = topic, has_places, is_json
        self._lines: list[str] = []

    def add(self, number: int, outcome: str, **facts: object) -> None:
        """Of the line with this number; ``facts`` are its place, or why it failed."""
        if self._is_json:
            self._lines.append(json.dumps({"line": number, "outcome": outcome, **facts}))
        elif self._has_places and "offset" in facts:
            place = f"[{facts['partition']}] at offset {facts['offset']}"
            self._lines.append(f"{self._topic} {place}")

    def add_failed(self, numbers: Iterable[int], error: ClientError) -> None:
        """Of lines that failed alike."""
        outcome = "refused" if was_not_appended(error) else "unknown"
        reason = message_of(error)
        for number in numbers:
            self.add(number, outcome, error_code=error.error_code, error=reason)

    def print(self) -> None:
        """Print what was added since the last call, when all are counted: output may fail."""
        lines, self._lines = self._lines, []
        if lines:
            click.echo("\n".join(lines))


class _Sender:
    """Appends groups of records and counts what became of them."""

    def __init__(
        self,
        client: Client,
        topic: str,
        partition: int | None,
        acks: str | None,
        receipts: Receipts,
    ) -> None:
        names = () if partition is None else ("partitions", partition)
        self._client, self._topic, self._receipts = client, topic, receipts
        self._path = path_of("topics", topic, *names)
        self._query = given(acks=acks)
        self._has_partition = partition is not None
        self.outcomes = Outcomes()
        self._first_too_large: int | None = None  # the number of its line
        self._unknown = _LineRanges()  # lines that may be in the topic
        self._stop: str = ""  # where, and at which line to go on

    def send(self, records: list[_ApiRecord], numbers: Sequence[int]) -> bool:
        """One request; False when the next one would fail for the same reason.

        ``numbers``: of the records' lines.
        """
        if self._has_partition:
            for record in records:
                record.pop("partition", None)  # the option decides
        outcomes, count = self.outcomes, len(records)
        try:
            answer = self._client.call(
                "POST", self._path, {"records": records}, query=self._query, content_type=BINARY
            )
            receipts = document_of(answer, "offsets")["offsets"] if answer.body else None
        except ClientError as error:
            outcomes.fail(error, count)
            is_refused = was_not_appended(error)
            if not is_refused:
                self._unknown.add(numbers[0], numbers[-1])
            self._stop = _stop_at(numbers, is_refused=is_refused)
            self._receipts.add_failed(numbers, error)
            self._receipts.print()
            return False
        except KeyboardInterrupt:
            outcomes.unknown += count
            self._unknown.add(numbers[0], numbers[-1])
            outcomes.reasons[_INTERRUPTED] += count
            for number in numbers:
                self._receipts.add(number, "unknown", error_code=None, error=_INTERRUPTED)
            self._receipts.print()
            raise
        outcomes.is_answered = receipts is not None
        if receipts is None:
            outcomes.appended += count
            for number in numbers:
                self._receipts.add(number, "sent")
        for number, receipt in zip(numbers, receipts or (), strict=False):
            failure = entry_failure(receipt)
            if failure is not None:
                outcomes.fail(failure, 1)
                self._receipts.add_failed([number], failure)
                if not was_not_appended(failure):
                    self._unknown.add(number, number)
                if failure.error_code == _TOO_LARGE and self._first_too_large is None:
                    self._first_too_large = number
                continue
            outcomes.appended += 1
            place = {name: receipt[name] for name in ("partition", "offset")}
            self._receipts.add(number, "appended", **place)
        self._receipts.print()
        return True

    def report(self, bad_line: _BadLine | None, is_part_left: bool) -> None:
        """Print on standard error why records were not appended, and the three numbers."""
        outcomes = self.outcomes
        is_whole = not outcomes.appended and len(outcomes.reasons) == 1
        for reason, count in outcomes.reasons.items():
            click.echo(
                f"Error: {reason}" if is_whole else f"{self._topic}: {reason} ({count} records)",
                err=True,
            )
        if self._first_too_large is not None:
            click.echo(
                f"The first record that is too large is line {self._first_too_large}. To take it, "
                f"raise the topic's limit: kafkalog topics alter {self._topic} --config "
                "max.message.bytes=BYTES",
                err=True,
            )
        if bad_line is not None:
            click.echo(f"Error: {bad_line}", err=True)
        if is_part_left:
            click.echo("The last line has no end; it was not sent.", err=True)
        if outcomes.unknown:
            click.echo(
                f"It is not known whether {self._unknown} of the input are in the topic: look "
                "there before you send them again.",
                err=True,
            )
        if self._stop:
            click.echo(self._stop, err=True)
        click.echo(outcomes, err=True)


class _LineRanges:
    """Numbers of lines, as people write them; of many ranges only the first ones."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._is_cut = False

    def add(self, first: int, last: int) -> None:
        """Lines behind all that were added before."""
        if self._ranges and self._ranges[-1][1] + 1 == first:
            self._ranges[-1] = (self._ranges[-1][0], last)
        elif len(self._ranges) < _RANGES_SHOWN:
            self._ranges.append((first, last))
        else:
            self._is_cut = True

    def __str__(self) -> str:
        texts = [
            f"line {first}" if first == last else f"lines {first} to {last}"
            for first, last in self._ranges
        ]
        if self._is_cut:
            texts.append("later ones")
        *before, end = texts
        return f"{', '.join(before)} and {end}" if before else end


def _stop_at(numbers: Sequence[int], *, is_refused: bool) -> str:
    """Where a failed request stopped the input, by the lines that it had; "" for its only line.

    The rest of the input may be endless: it is not counted.
    """
    first, last = numbers[0], numbers[-1]
    if last == 1:
        return ""
    if is_refused:
        return f"Stopped at line {first}: no later line is in the topic. Go on with line {first}."
    sent = f"lines {first} to {last} are" if first < last else f"line {last} is"
    other = "the first of them that is not" if first < last else f"line {last}"
    return (
        f"Stopped after line {last}: no later line was sent. Go on with line {last + 1} if {sent} "
        f"in the topic, otherwise with {other}."
    )


@click.command()
@topic_argument()
@click.option(
    "--partition",
    type=int,
    help="Default: that of a JSONL record, else by key; records without a key go together to one"
    " partition.",
)
@click.option("--key-separator", "-K", help="Split each line into key and value at this text.")
@click.option(
    "--format",
    "input_format",
    type=click.Choice(["lines", "jsonl"]),
    default="lines",
    help="jsonl: records {key, value, headers, timestamp, partition}, as consume --output json"
    " prints them.",
)
@acks_option
@click.option("--verbose", "-v", is_flag=True, help="Print partition and offset of each record.")
@click.option(
    "--output",
    type=click.Choice(["json"]),
    help="Print JSON for each record: line, outcome (appended, sent, refused or unknown), and"
    " partition and offset, or error_code and error.",
)
@with_client
def produce(
    topic: str,
    partition: int | None,
    key_separator: str | None,
    input_format: str,
    acks: str | None,
    verbose: bool,
    output: str | None,
    client: Client,
) -> None:
    """Append lines of standard input to a topic as records. Exit 3 when only some were appended.

    Sends when the input pauses for 100 ms, and each line at once on a terminal. Ends with the
    input, at Ctrl-C, at a request that fails as a whole (it says with which line to go on) and at a
    line that is not a record, which counts as refused; what was read before is appended. Says how
    many records were appended, were refused (they are not in the topic) and are unknown (no answer
    came: they may be in the topic).

    In JSONL a string is text, any other value is stored as its JSON text, and null is null.
    "key_format" and "value_format" can say json (a string with its quotes) or base64.

    Example: echo 'k1:hello' | kafkalog produce orders -K :
    """
    if key_separator == "":
        raise click.UsageError("--key-separator is empty")
    if sys.stdin is None:
        raise click.UsageError("Standard input is closed")
    separator = None if key_separator is None else key_separator.encode()
    parse = _parser(input_format == "jsonl", separator)
    receipts = Receipts(topic, has_places=verbose, is_json=output is not None)
    sender = _Sender(client, topic, partition, acks, receipts)
    bad_line: _BadLine | None = None
    with LineInput(sys.stdin.fileno()) as lines:
        try:
            with progress() as shown:
                for records, numbers in _records(lines.groups(), parse):
                    if not sender.send(records, numbers):
                        break
                    if not verbose and output is None:
                        shown.show(f"{sender.outcomes.appended} records sent")
        except _BadLine as error:
            bad_line = error
            sender.outcomes.refused += 1
            receipts.add(error.number, "refused", error_code=None, error=str(error))
            receipts.print()
        finally:
            sender.report(bad_line, lines.is_interrupted and lines.has_part)
    outcomes = sender.outcomes
    if lines.is_interrupted:
        raise KeyboardInterrupt
    if outcomes.reasons or bad_line is not None:
        raise click.exceptions.Exit(PARTIAL_FAILURE if outcomes.appended else 1)
