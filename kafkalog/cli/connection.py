"""How commands reach the daemon: its address, credentials, TLS; and how they report its errors.

Secrets come from files or from the terminal, never from the command line, which others can read. A
client makes one try of each request, so that a person or a script sees the reason of a failure at
once; only for a daemon that is starting it waits, and says so. One on this machine may not have
opened its port yet: a start was often called for in the line before. It is waited for as long as
its process can be seen, and for some seconds when none is. In an answer about several partitions
each failure is an entry; the exit status is then 3, or 1 when all failed.

``kafkalog health`` is the probe of the container image and of scripts; exit 0 or 1.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.output import document_option, is_printed, output_option
from kafkalog.client import ONE_TRY, Basic, Bearer, Client, ClientError, Retries, Tls
from kafkalog.client.errors import UnknownGroup, document_of
from kafkalog.client.messages import DEFAULT_URL, Address, EmptyName, UnwritableName
from kafkalog.format.control_characters import escaped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

TIMEOUT_SECONDS = 30.0
STARTING_SECONDS = 60.0
NO_DAEMON_SECONDS = 10.0
OPENING_SECONDS = 180.0  # for the process of a daemon that has no port yet
_PAUSE_SECONDS_MAX = 0.5
_HEALTH_SECONDS = 3.0
PARTIAL_FAILURE = 3
"""The exit status when some of the work was done and some failed."""
_FAILURE = 1
"""When none of it was done."""
_CORRUPT_MESSAGE = 50010  # docs/reference/errors.md
Command = Callable[..., None]


class RequestFailed(click.ClickException):
    """The daemon refused the request or cannot be reached; the message says what to do."""

    exit_code = 1


class WaitNotice:
    """Says on standard error that the command waits: once for a port, once for a start."""

    def __init__(self) -> None:
        self._said: set[tuple[bool, float]] = set()

    def __call__(self, failure: ClientError, seconds: float) -> None:
        """The failure says how far the start is; the seconds, how long the command waits."""
        if (failure.is_starting, seconds) not in self._said:
            self._said.add((failure.is_starting, seconds))
            state = state_of(failure)
            if seconds == OPENING_SECONDS and not failure.is_starting:
                state += ", but a daemon is starting on this machine"
            click.echo(f"{state}; waiting up to {seconds:.0f} seconds.", err=True)


def _opening_seconds(port: int) -> float:
    """How long to wait for a daemon of this machine that has no port yet; 0: there is none."""
    from kafkalog.env.daemon_processes import starting_daemons  # late: for a closed port only

    return OPENING_SECONDS if starting_daemons(port) else 0.0


url_option = click.option(
    "--url",
    "--bootstrap-server",
    envvar="KAFKALOG_URL",
    default=DEFAULT_URL,
    help="Address of the daemon: http(s)://host:port.",
)
_access_options = tuple(
    click.option(
        f"--{name}",
        envvar=f"KAFKALOG_{name.upper().replace('-', '_')}",
        type=None if name == "user" else click.Path(exists=True, dir_okay=False),
        help=text,
    )
    for name, text in (
        ("user", "User name; the password comes from a prompt or from --password-file."),
        ("password-file", "File with the password of --user."),
        ("token-file", "File with a bearer token."),
        ("ca-file", "CA certificates to trust with https, in PEM. Default: those of the system."),
        (
            "client-cert",
            "Client certificate in PEM; its key is in the same file or in --client-key.",
        ),
        ("client-key", "Private key of --client-cert, in PEM."),
    )
)


def with_credentials(command: Command) -> Command:
    """Add the options; the command gets ``credentials`` and ``tls``, None when not given."""

    @functools.wraps(command)
    def with_access(
        *args: object,
        user: str | None,
        password_file: str | None,
        token_file: str | None,
        ca_file: str | None,
        client_cert: str | None,
        client_key: str | None,
        **options: object,
    ) -> None:
        tls = Tls(ca_file, client_cert, client_key)
        command(
            *args,
            credentials=_credentials(user, password_file, token_file),
            tls=None if tls == Tls() else tls,
            **options,
        )

    for option in reversed(_access_options):
        with_access = option(with_access)
    return with_access


def client_within(
    timeout_seconds: float, retries: Retries | None = None
) -> Callable[[Command], Command]:
    """Add the options; the command gets ``client`` in their place, and its errors are click's."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def connected(
            *args: object,
            url: str,
            credentials: Basic | Bearer | None,
            tls: Tls | None,
            **options: object,
        ) -> None:
            with open_client(url, credentials, tls, timeout_seconds, retries) as client:
                command(*args, client=client, **options)

        return with_credentials(url_option(connected))

    return decorate


with_client = client_within(TIMEOUT_SECONDS)


def with_client_and_output(command: Command) -> Command:
    """Add the options of ``with_client`` and --output."""
    return with_client(output_option(command))


def with_client_and_document(command: Command) -> Command:
    """The same without --output name: what it prints has no names."""
    return with_client(document_option(command))


@contextmanager
def open_client(
    url: str,
    credentials: Basic | Bearer | None,
    tls: Tls | None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    retries: Retries | None = None,
) -> Iterator[Client]:
    """A client; its errors leave the block as click's. ``retries`` None: wait for a start."""
    if "," in url:
        raise click.UsageError(f"There is one daemon: give one address, not a list: '{url}'")
    try:
        address = Address.of(url)
    except ValueError as error:
        message = f"The address of a daemon is http://host:port, not '{url}'"
        raise click.UsageError(message) from error
    is_here = address.is_loopback
    retries = retries or Retries(
        deadline_seconds=0,
        backoff_seconds_max=_PAUSE_SECONDS_MAX,
        starting_seconds=STARTING_SECONDS,
        no_daemon_seconds=NO_DAEMON_SECONDS if is_here else 0.0,
        opening_seconds=functools.partial(_opening_seconds, address.port) if is_here else None,
        on_waiting=WaitNotice(),
    )
    try:
        opened = Client(
            url, credentials=credentials, tls=tls, timeout_seconds=timeout_seconds, retries=retries
        )
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise click.UsageError(f"TLS cannot be set up: {error}") from error
    with opened as client:
        try:
            yield client
        except (EmptyName, UnwritableName) as error:
            raise click.UsageError(str(error)) from error
        except ClientError as error:
            raise RequestFailed(message_of(error)) from error


def message_of(error: ClientError) -> str:
    """The message, with what an operator can do about it; no byte of it steers a terminal."""
    return _printable(_advised(error))


def state_of(failure: ClientError) -> str:
    """What the failure says of the daemon, without its advice and its full stop."""
    return _printable(failure.message.partition(";")[0].rstrip("."))


def _printable(text: str) -> str:
    """The text with its control characters written out: another server may have sent it."""
    return escaped(text, but="\t\n")


def _advised(error: ClientError) -> str:
    if error.is_starting:
        return f"{error.message} `kafkalog health --ready` says when it is ready."
    if error.may_be_down:
        return f"{error.message} Is the daemon running? (kafkalog server)"
    if isinstance(error, UnknownGroup):
        return f"{error.message} `kafkalog groups list` shows all groups."
    first, last = error.details.get("base_offset"), error.details.get("last_offset")
    if "first_offset" in error.details and error.error_code == _CORRUPT_MESSAGE:
        return f"{error.message} `kafkalog runbooks describe lost-offsets` says what to do."
    if error.error_code != _CORRUPT_MESSAGE:
        return error.message
    if {"topic", "partition"} <= error.details.keys():  # it could not be loaded
        return (
            f"{error.message} {error.details['topic']}-{error.details['partition']} is out of"
            " service: its line partition_offline in the daemon's log says why and what to do."
        )
    if first is None:
        return error.message
    where = f"offset {first}" if last == first else f"offsets {first} to {last or 'the end'}"
    return (
        f"{error.message.rstrip('.')}: {where}. `kafkalog segments verify` checks its files,"
        " `kafkalog runbooks describe rotten-record` says what to do."
    )


def _credentials(
    user: str | None, password_file: str | None, token_file: str | None
) -> Basic | Bearer | None:
    if token_file is not None and user is not None:
        raise click.UsageError("Give --user or --token-file, not both")
    if password_file is not None and user is None:
        raise click.UsageError("--password-file needs --user")
    try:
        if token_file is not None:
            return Bearer(_secret(token_file))
        if user is None:
            return None
        if password_file is not None:
            return Basic(user, _secret(password_file))
        if not sys.stdin.isatty():
            raise click.UsageError("--user needs --password-file when there is no terminal")
        return Basic(user, click.prompt("Password", hide_input=True, err=True))
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _secret(file: str) -> str:
    """The first line of the file."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file} cannot be read as text") from error
    if not lines or not lines[0]:
        raise click.UsageError(f"{file} is empty")
    return lines[0]


def is_failed(entry: dict[str, Any]) -> bool:
    """Whether the entry of a partition is an error entry."""
    return "error_code" in entry


def name_of(entry: dict[str, Any]) -> str:
    """The partition of an entry, as orders-0."""
    return f"{entry['topic']}-{entry['partition']}"


def report_failures(entries: Iterable[dict[str, Any]]) -> bool:
    """Print each failed entry on standard error; whether there is one."""
    failed = [entry for entry in entries if is_failed(entry)]
    for entry in failed:
        click.echo(_printable(f"Error: {name_of(entry)}: {entry['error']}"), err=True)
    return bool(failed)


def names_of(entries: Iterable[dict[str, Any]]) -> list[str]:
    """The partitions of entries that did not fail, as orders-0."""
    return [name_of(entry) for entry in entries if not is_failed(entry)]


def exit_on_failures(entries: Collection[dict[str, Any]]) -> None:
    """Report failed entries; with one the command ends here."""
    report_failures(entries)
    exit_after(map(is_failed, entries))


def exit_after(failed: Iterable[bool]) -> None:
    """End the command here if a part of its work failed, with the status for some or for all."""
    outcomes = set(failed)
    if True in outcomes:
        raise click.exceptions.Exit(PARTIAL_FAILURE if False in outcomes else _FAILURE)


def failed_entry(topic: str, partition: int, error: ClientError) -> dict[str, Any]:
    """The entry of a partition whose own request failed."""
    failure = {"error_code": error.error_code, "error": message_of(error)}
    return {"topic": topic, "partition": partition, **failure}


@click.command()
@click.option("--ready", is_flag=True, help="Ask whether it is ready, not only alive.")
@client_within(_HEALTH_SECONDS, ONE_TRY)
@document_option
def health(ready: bool, client: Client, output: str) -> None:
    """Exit 0 when the daemon is alive, or with --ready when it is ready; else 1.

    A daemon whose partitions are out of service is ready, because it serves what it can: the exit
    status is 0, and --ready prints how many there are.

    Example: kafkalog health --ready
    """
    found = document_of(client.call("GET", "/readyz" if ready else "/livez"), "status")
    state = "ready" if ready else "alive"
    served, offline = found.get("partitions", 0), found.get("offline_partitions", 0)
    document = {"state": state}
    if ready:
        document |= {"partitions": served, "offline_partitions": offline}
    if not is_printed(output, document):
        click.echo(f"{state}; {_out_of_service(served, offline)}" if offline else state)


def _out_of_service(served: int, offline: int) -> str:
    every = served + offline
    are = "is" if offline == 1 else "are"
    return (
        f"{offline} of {every} partition{'s' * (every != 1)} {are} out of service:"
        " `kafkalog topics list` shows of which topics, `kafkalog topics describe TOPIC` says why"
    )
