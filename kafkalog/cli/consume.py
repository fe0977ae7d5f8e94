"""``kafkalog consume``: prints records of a topic, and follows its end.

With --group it is a member of the group: an instance of the v2 consumers, which the daemon forgets
when it is idle for consumer.instance.timeout.ms. What was printed and written is committed after
each page and at the end, and before the first page where each partition begins, as Kafka's consumer
does: another member or the next run reads on there, also with another --from-beginning.

Without --exit-at-end it outlives restarts of the daemon, as Kafka's does. Members of groups are not
stored: after a restart it joins its group again.
"""

from __future__ import annotations

import math
import re
import signal
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kafkalog.cli.arguments import IntRange, isolation_option, topic_argument
from kafkalog.cli.connection import (
    PARTIAL_FAILURE,
    RequestFailed,
    is_failed,
    message_of,
    report_failures,
    state_of,
    with_client,
)
from kafkalog.client import ONE_TRY, ClientError, ConnectFailed, DaemonFault, OutcomeUnknown
from kafkalog.client.errors import NOT_READY
from kafkalog.client.fetch import page_records
from kafkalog.client.messages import BINARY, path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kafkalog.client import Client, ConsumerRecord
    from kafkalog.client.records import FetchedRecords, Isolation

_WAIT_MS = 1000
_AWAY_PAUSE_SECONDS = 0.5
_AWAY_SECONDS = 300.0  # of a member of a group
_UNKNOWN_INSTANCE = 40403  # docs/reference/errors.md
_TERMINATED = 143  # what a shell says of a program that SIGTERM ended
_OFFSET = re.compile("earliest|latest|-?[0-9]+")


def _start(client: Client, topic: str, partition: int, wanted: str) -> int:
    """The offset to start at; -n is n before the end."""
    if wanted.isdigit():
        return int(wanted)
    first, end = client.offset_range(topic, partition)
    if wanted == "earliest":
        return first
    if wanted == "latest":
        return end
    return max(first, end + int(wanted))


class Printer:
    """Prints records in the form that the options ask for; bytes are not changed."""

    def __init__(
        self, *, as_json: bool, print_key: bool, key_separator: str, max_messages: int | None
    ) -> None:
        self._json_line: Callable[..., str] | None = None
        if as_json:
            from kafkalog.format.wire.readable import record_line  # late: not for plain values

            self._json_line = record_line
        self._print_key = print_key
        self._separator = key_separator.encode()
        self._max_messages = max_messages
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether --max-messages were printed."""
        return self._max_messages is not None and self.count >= self._max_messages

    def write(self, record: ConsumerRecord) -> None:
        """One record per line."""
        self.count += 1  # first, so that an interrupt while writing counts the record
        out = sys.stdout.buffer
        if self._json_line is not None:
            out.write(self._json_line(*record).encode() + b"\n")
        else:
            if self._print_key:
                out.write((b"null" if record.key is None else record.key) + self._separator)
            out.write((b"null" if record.value is None else record.value) + b"\n")

    def close(self) -> None:
        """Print on standard error how many records were printed, once they are."""
        sys.stdout.buffer.flush()
        click.echo(f"Processed a total of {self.count} messages", err=True)


@click.command()
@topic_argument()
@click.option("--partition", type=int, help="Default: all partitions.")
@click.option("--offset", help="earliest, latest, a number, or -n.  [default: latest]")
@click.option("--from-beginning", is_flag=True, help="Same as --offset earliest.")
@click.option(
    "--group",
    help="Read as a member of this consumer group, on from its commits, and commit what was "
    "printed.",
)
@click.option("--max-messages", type=IntRange(min=1), help="Stop after this many records.")
@click.option(
    "--exit-at-end", "-e", is_flag=True, help="Stop at the end of the log instead of waiting."
)
@click.option("--print-key", is_flag=True, help="Print the key before the value.")
@click.option(
    "--key-separator",
    default="\t",
    show_default=False,
    help="Text between key and value; default TAB.",
)
@isolation_option
@click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Values, or a JSON object a record, which produce --format jsonl takes.",
)
@with_client
def consume(
    topic: str,
    partition: int | None,
    offset: str | None,
    from_beginning: bool,
    group: str | None,
    max_messages: int | None,
    exit_at_end: bool,
    print_key: bool,
    key_separator: str,
    isolation: Isolation | None,
    output: str,
    client: Client,
) -> None:
    """Print records of a topic, by default those appended from now on.

    Without --partition, reads all partitions that are served; exit 3 when one is not. With --group,
    --from-beginning is for partitions without a commit of the group. A daemon that restarts is
    waited for, and reading goes on where it was, with --group from the commits of the group, if the
    daemon answers within five minutes; with --exit-at-end the command ends.

    With --output json, keys, values and headers that are JSON are shown as they are, text as
    strings, and other bytes in base64 with "key_format" or "value_format" beside it. A JSON string
    is marked too, because its quotes are stored.

    Example: kafkalog consume orders --from-beginning -e
    """
    _check_offset(offset, from_beginning=from_beginning)
    if group is not None and (partition is not None or offset is not None):
        raise click.UsageError(
            "--group reads the partitions that the group gives it, from its commits on: leave out "
            "--partition and --offset. kafkalog groups reset-offsets moves the commits."
        )
    partitions, is_partial = _partitions_of(client, topic, partition)
    wanted = "earliest" if from_beginning else offset or "latest"
    positions = {}
    if group is None:
        positions = {each: _start(client, topic, each, wanted) for each in partitions}
    printer = Printer(
        as_json=output == "json",
        print_key=print_key,
        key_separator=key_separator,
        max_messages=max_messages,
    )
    waiting = _Waiting(topic, wanted, group, exits=exit_at_end)
    try:
        if group is not None:
            configs = {"auto.offset.reset": wanted, "isolation.level": isolation}
            member = _Member(client, topic, group, configs, exits=exit_at_end)
            _follow_in_group(member, printer, waiting)
        else:
            _follow(client, topic, positions, isolation, printer, waiting)
    except OSError:  # of the output: how many records of it were written is not known
        raise
    except BaseException:
        printer.close()
        raise
    printer.close()
    if is_partial:
        raise click.exceptions.Exit(PARTIAL_FAILURE)


def _check_offset(offset: str | None, *, from_beginning: bool) -> None:
    """Raises UsageError."""
    if offset is None:
        return
    if from_beginning:
        raise click.UsageError("Give either --from-beginning or --offset")
    if not _OFFSET.fullmatch(offset):
        raise click.UsageError("--offset takes earliest, latest, a number, or -n")


def _partitions_of(client: Client, topic: str, partition: int | None) -> tuple[list[int], bool]:
    """What is to be read, and whether a partition is not served, which is said."""
    if partition is not None:
        return [partition], False
    entries = [{"topic": topic, **entry} for entry in client.partitions(topic)]
    is_partial = report_failures(entries)
    partitions = [int(entry["partition"]) for entry in entries if not is_failed(entry)]
    if not partitions:
        raise RequestFailed(f"No partition of topic {topic} is served.")
    return partitions, is_partial


class _Waiting:
    """The end of what there is: says once, on a terminal, what is waited for and how to stop."""

    def __init__(self, topic: str, wanted: str, group: str | None, *, exits: bool) -> None:
        start = {"earliest": "beginning", "latest": "end"}.get(wanted)
        if group is not None:
            self._text = f"{topic}, for group {group}, on from its commits, else from the {start}"
        elif start is not None:
            self._text = f"{topic}, from its {start} on"
        else:
            self._text = f"{topic}, from offset {wanted} on"
        if wanted == "latest":
            self._text += " (--from-beginning prints earlier ones)"
        self._is_said = exits or not sys.stderr.isatty()
        self.exits = exits

    def begin(self) -> None:
        """There is nothing to read."""
        if not self._is_said:
            self._is_said = True
            click.echo(f"Waiting for records of {self._text}. Ctrl-C stops.", err=True)


def _follow_in_group(member: _Member, printer: Printer, waiting: _Waiting) -> None:
    """Join, print what the group gives this member and commit it, and leave in any case."""
    with _ends_between_records() as ends:
        try:
            while True:
                records = member.read()
                for record in records:
                    with ends.held():
                        printer.write(record)
                        member.note_printed(record)
                    if printer.is_full:
                        return
                if not records:
                    if waiting.exits:
                        return
                    waiting.begin()
        finally:
            member.leave()


class _Member:
    """An instance of a v2 consumer, which joins again after a restart of the daemon."""

    def __init__(
        self,
        client: Client,
        topic: str,
        group: str,
        configs: Mapping[str, str | None],
        *,
        exits: bool,
    ) -> None:
        self._client = client if exits else client.with_retries(ONE_TRY)
        self._topic = topic
        self._group = group
        given = {name: value for name, value in configs.items() if value is not None}
        self._configs = {**given, "auto.commit.enable": "false"}
        self._absence = _Absence(
            "from the commits of the group", exits=exits, seconds_max=_AWAY_SECONDS
        )
        self._path: str | None = None  # of the instance; None: there is none
        self._wait_ms = 0
        self._printed: dict[tuple[str, int], int] = {}  # and not committed

    def read(self) -> tuple[ConsumerRecord, ...]:
        """The next page; what was printed is committed before. Raises ClientError."""
        while True:
            try:
                path = self._path or self._join()
                records = self._next_page(path)
            except ClientError as error:
                self._absence.check(error, is_away=error.error_code == _UNKNOWN_INSTANCE)
                # What was printed and not committed is printed again, as Kafka's consumer does:
                # another member may have read on there meanwhile.
                self._path, self._wait_ms, self._printed = None, 0, {}
                self._absence.wait(error)  # an interrupt finds no instance that it has to leave
            else:
                self._absence.end()
                self._wait_ms = 0 if records else _WAIT_MS
                return records

    def note_printed(self, record: ConsumerRecord) -> None:
        """To be committed."""
        self._printed[self._topic, record.partition] = record.offset + 1

    def leave(self) -> None:
        """Commit what was printed, and leave the group."""
        if self._path is None:
            return
        try:
            sys.stdout.buffer.flush()
            if self._printed:
                self._client.commit_offsets(self._group, self._printed)
        finally:
            self._client.call("DELETE", self._path)

    def _join(self) -> str:
        instances = path_of("consumers", self._group)
        made = self._client.call("POST", instances, {"format": "binary", **self._configs})
        self._path = path_of("consumers", self._group, "instances", made.json["instance_id"])
        self._client.call("POST", f"{self._path}/subscription", {"topics": [self._topic]})
        return self._path

    def _next_page(self, path: str) -> tuple[ConsumerRecord, ...]:
        if not self._wait_ms:  # where it begins, too: else another run would begin elsewhere
            sys.stdout.buffer.flush()  # what cannot be written is not committed
            self._client.call("POST", f"{path}/offsets")
            self._printed.clear()
        answer = self._client.call(
            "GET",
            f"{path}/records",
            query={"timeout": self._wait_ms},
            accept=BINARY,
            wait_seconds=self._wait_ms / 1000,
        )
        return page_records(answer)


class _Ends:
    """SIGINT and SIGTERM: one waits while a record is printed and noted, a second does not."""

    def __init__(self) -> None:
        self._is_held = False
        self._end: BaseException | None = None

    def handle(self, number: int, _frame: object) -> None:
        """A signal handler. Raises KeyboardInterrupt, SystemExit."""
        end = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(_TERMINATED)
        if not self._is_held or self._end is not None:
            raise end
        self._end = end

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises at the end what came meanwhile."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._end is not None:
            raise self._end


@contextmanager
def _ends_between_records() -> Iterator[_Ends]:
    """A member that is killed lingers: both lead through its leave. An ignored one stays so."""
    ends, former = _Ends(), {}
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            former[number] = signal.signal(number, ends.handle)
    try:
        yield ends
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _follow(
    client: Client,
    topic: str,
    positions: dict[int, int],
    isolation: Isolation | None,
    printer: Printer,
    waiting: _Waiting,
) -> None:
    """Read the partitions in turn; wait only after a round without records."""
    pages = _Pages(client, topic, isolation, exits=waiting.exits)
    is_idle = False
    while True:
        found = False
        for partition in positions:
            wait = _WAIT_MS // len(positions) if is_idle else 0
            page = pages.fetch(partition, positions[partition], wait)
            for record in page.records:
                printer.write(record)
                if printer.is_full:
                    return
            next_offset = page.position.next_offset
            found = found or next_offset > positions[partition]
            positions[partition] = next_offset
        sys.stdout.buffer.flush()
        is_idle = not found
        if is_idle:
            if waiting.exits:
                return
            waiting.begin()


class _Pages:
    """Pages of records; a daemon that is away is waited for."""

    def __init__(
        self, client: Client, topic: str, isolation: Isolation | None, *, exits: bool
    ) -> None:
        self._topic = topic
        self._isolation = isolation
        self._client = client if exits else client.with_retries(ONE_TRY)
        self._absence = _Absence("where it was", exits=exits)

    def fetch(self, partition: int, offset: int, wait_ms: int) -> FetchedRecords:
        """The page from the offset on. Raises RequestFailed for damage, ClientError."""
        while True:
            try:
                page = self._client.fetch_page(
                    self._topic, partition, offset, max_wait_ms=wait_ms, isolation=self._isolation
                )
            except DaemonFault as error:
                message = f"Partition {self._topic}-{partition}: {message_of(error)}"
                last = error.details.get("last_offset")
                if last is not None:  # behind the damage
                    message += f" To read on after it: --partition {partition} --offset {last + 1}"
                raise RequestFailed(message) from error
            except ClientError as error:
                self._absence.check(error)
                self._absence.wait(error)
            else:
                self._absence.end()
                return page


class _Absence:
    """A daemon that is away: says once that it is waited for, and once that it is back.

    seconds_max  how long it may be silent; one that is starting answers
    """

    def __init__(self, start: str, *, exits: bool, seconds_max: float = math.inf) -> None:
        self._start = start
        self._exits = exits
        self._seconds_max = seconds_max
        self._is_told = False
        self._silent_since: float | None = None

    def check(self, failure: ClientError, *, is_away: bool = False) -> None:
        """Raises the failure if it is another one, or has lasted too long."""
        if self._exits or not (is_away or _says_away(failure)):
            raise failure
        now = time.monotonic()
        if failure.status is not None:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = now
        elif now - self._silent_since > self._seconds_max:
            raise failure

    def wait(self, failure: ClientError) -> None:
        """Until the next try."""
        if not self._is_told:
            self._is_told = True
            sys.stdout.buffer.flush()  # what was read before
            bound = (
                "" if math.isinf(self._seconds_max) else f" up to {self._seconds_max:.0f} seconds"
            )
            click.echo(
                f"{state_of(failure)}; waiting{bound} to read on {self._start}. Ctrl-C stops.",
                err=True,
            )
        time.sleep(_AWAY_PAUSE_SECONDS)

    def end(self) -> None:
        """It has answered."""
        self._silent_since = None
        if self._is_told:
            self._is_told = False
            click.echo("The daemon answers again; reading goes on.", err=True)


def _says_away(failure: ClientError) -> bool:
    """Whether the daemon has stopped, is starting, or cannot be reached for now."""
    if isinstance(failure, ConnectFailed):
        return failure.may_be_down
    return isinstance(failure, OutcomeUnknown) or failure.error_code == NOT_READY
