"""Where the daemon is and who asks: options of every command that speaks to one.

Secrets come from files, or from the terminal; never from the command line, which others can read.

Answers about several partitions some of which failed: who and why, and the exit status.

``kafkalog health``: the probe of the container image and of scripts; exit 0 or 1.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkalog.client import (
    ONE_TRY,
    Basic,
    Bearer,
    Client,
    ClientError,
    ConnectFailed,
    OutcomeUnknown,
    Tls,
)
from kafkalog.client.messages import DEFAULT_URL, Address, EmptyName, UnwritableName

if TYPE_CHECKING:
    from collections.abc import Iterable


TIMEOUT_SECONDS = 60.0
_CORRUPT_MESSAGE = 50010  # docs/errors.md
Command = Callable[..., None]


class RequestFailed(click.ClickException):
    """The daemon refused, or cannot be reached; the message says what to do."""

    exit_code = 1


url_option = click.option(
    "--url",
    "--bootstrap-server",
    envvar="KAFKALOG_URL",
    default=DEFAULT_URL,
    show_default=True,
    help="Where the daemon listens: http(s)://host:port.",
)
_file = click.Path(exists=True, dir_okay=False)
_access_options = (
    click.option(
        "--user", envvar="KAFKALOG_USER", help="With a password: asked for, or of a file."
    ),
    click.option(
        "--password-file",
        envvar="KAFKALOG_PASSWORD_FILE",
        type=_file,
        help="Holds the password of --user.",
    ),
    click.option(
        "--token-file", envvar="KAFKALOG_TOKEN_FILE", type=_file, help="Holds a bearer token."
    ),
    click.option(
        "--ca-file",
        envvar="KAFKALOG_CA_FILE",
        type=_file,
        help="Whom to believe with https, in PEM. Default: the machine's authorities.",
    ),
    click.option(
        "--client-cert",
        envvar="KAFKALOG_CLIENT_CERT",
        type=_file,
        help="A certificate of our own, in PEM, with its key or with --client-key.",
    ),
    click.option("--client-key", envvar="KAFKALOG_CLIENT_KEY", type=_file, help="Its key."),
)
output_option = click.option(
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people, or one JSON document.",
)


def with_credentials(command: Command) -> Command:
    """Add who asks; the command gets ``credentials`` and ``tls``, each None without."""

    @functools.wraps(command)
    def asked(
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
        asked = option(asked)
    return asked


def client_within(timeout_seconds: float) -> Callable[[Command], Command]:
    """Add the options; the command gets ``client`` in their place, and its errors are click's."""
    return lambda command: with_credentials(url_option(_connected(command, timeout_seconds)))


with_client = client_within(TIMEOUT_SECONDS)


def _connected(command: Command, timeout_seconds: float) -> Command:
    @functools.wraps(command)
    def connected(
        *args: object,
        url: str,
        credentials: Basic | Bearer | None,
        tls: Tls | None,
        **options: object,
    ) -> None:
        with open_client(url, credentials, tls, timeout_seconds) as client:
            command(*args, client=client, **options)

    return connected


@contextmanager
def open_client(
    url: str,
    credentials: Basic | Bearer | None,
    tls: Tls | None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Iterator[Client]:
    """A client whose errors, when they reach the end of the block, are click's."""
    with _client(url, credentials, tls, timeout_seconds) as client:
        try:
            yield client
        except (EmptyName, UnwritableName) as error:
            raise click.UsageError(str(error)) from error
        except ClientError as error:
            raise RequestFailed(message_of(error)) from error


def message_of(error: ClientError) -> str:
    """What a person reads of it."""
    if isinstance(error, ConnectFailed | OutcomeUnknown) and error.status is None:
        return f"{error.message} Is the daemon running? (kafkalog server)"
    first, last = error.details.get("base_offset"), error.details.get("last_offset")
    if "first_offset" in error.details and error.error_code == _CORRUPT_MESSAGE:
        return f"{error.message} docs/runbooks/lost-offsets.md says what to do."
    if error.error_code != _CORRUPT_MESSAGE or first is None:
        return error.message
    where = f"offset {first}" if last == first else f"offsets {first} to {last or 'the end'}"
    return (
        f"{error.message.rstrip('.')}: {where}. `kafkalog segments verify` looks at its files,"
        " docs/runbooks/rotten-record.md says what to do."
    )


def _client(
    url: str, credentials: Basic | Bearer | None, tls: Tls | None, timeout_seconds: float
) -> Client:
    """One try of each request: a person, or a script, sees at once what is the matter."""
    try:
        Address.of(url)
    except ValueError as error:
        raise click.UsageError(f"The daemon's address is http://host:port, not '{url}'") from error
    try:
        return Client(
            url,
            credentials=credentials,
            tls=tls,
            timeout_seconds=timeout_seconds,
            retries=ONE_TRY,
        )
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise click.UsageError(f"TLS cannot be set up: {error}") from error


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
            raise click.UsageError("--user needs --password-file when nobody can be asked")
        return Basic(user, click.prompt("Password", hide_input=True, err=True))
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _secret(file: str) -> str:
    """Its first line."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{file} cannot be read as text") from error
    if not lines or not lines[0]:
        raise click.UsageError(f"{file} is empty")
    return lines[0]


PARTIAL_FAILURE = 3  # exit status: something was done, something was not


def is_failed(entry: dict[str, Any]) -> bool:
    """Whether the entry of a partition is an error entry."""
    return "error_code" in entry


def tell_failures(entries: Iterable[dict[str, Any]]) -> bool:
    """Every failure in a line of its own on standard error; whether there is one."""
    failed = [entry for entry in entries if is_failed(entry)]
    for entry in failed:
        click.echo(f"Error: {entry['topic']}-{entry['partition']}: {entry['error']}", err=True)
    return bool(failed)


def end_with_failures(ctx: click.Context, entries: Iterable[dict[str, Any]]) -> None:
    """Tell every failure; with one the command ends here, partly failed."""
    if tell_failures(entries):
        ctx.exit(PARTIAL_FAILURE)


_TIMEOUT_SECONDS = 3.0


@click.command()
@click.option("--ready", is_flag=True, help="Ask whether it is ready, not only alive.")
@client_within(_TIMEOUT_SECONDS)
def health(ready: bool, client: Client) -> None:
    """Exit 0 when the daemon is alive (or, with --ready, ready).

    Example: kafkalog health --ready
    """
    client.call("GET", "/readyz" if ready else "/livez")
    click.echo("ready" if ready else "alive")
