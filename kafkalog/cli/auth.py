"""``kafkalog auth``: lines for the credentials file (``http.auth.file``), without a server.

The line goes to standard output, so that it can be appended to the file; what only the owner may
see goes to standard error, once.
"""

from __future__ import annotations

import secrets
import sys

import click

from kafkalog.format.disk.credentials import (
    SALT_BYTES,
    TOKEN_BYTES,
    PasswordHash,
    basic_line,
    bearer_line,
    login_fault,
)


def _principal(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    fault = login_fault(value)
    if fault is not None:
        raise click.BadParameter(fault)
    return value


@click.command()
@click.argument("principal", callback=_principal)
def hash_password(principal: str) -> None:
    """Print the line of a password, which is asked for or read from standard input.

    Example: kafkalog auth hash-password alice >> credentials
    """
    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise click.ClickException("The password is empty.")
    hashed = PasswordHash.of(password.encode(), secrets.token_bytes(SALT_BYTES))
    click.echo(basic_line(principal, hashed))


@click.command()
@click.argument("principal", callback=_principal)
def new_token(principal: str) -> None:
    """Draw a token, print its line, and show the token itself on standard error.

    Example: kafkalog auth new-token ci >> credentials
    """
    token = secrets.token_urlsafe(TOKEN_BYTES)
    click.echo(bearer_line(principal, token.encode()))
    click.echo(f"The token of {principal}, shown this once: {token}", err=True)
