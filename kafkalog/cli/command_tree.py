"""What the generated pages say of the command tree: its commands, their usage and their options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kafkalog.cli.completion import PROGRAM

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PROGRAM", "SAMPLE", "leaves", "options_of", "usage_of"]

_CONNECTION = frozenset(
    {
        "--url", "--bootstrap-server", "--user", "--password-file", "--token-file", "--ca-file",
        "--client-cert", "--client-key",
    }
)  # fmt: skip
SAMPLE = ("topics", "list")  # a command that has all of these


def leaves(
    command: click.Command, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command that is shown, with the words that call it."""
    if command.hidden:
        return
    if not isinstance(command, click.Group):
        yield words, command
        return
    context = click.Context(command, info_name=words[-1] if words else PROGRAM)
    for name in sorted(command.list_commands(context)):
        child = command.get_command(context, name)
        assert child is not None
        yield from leaves(child, (*words, name))


def usage_of(command: click.Command, words: tuple[str, ...]) -> str:
    """What is typed, from the program's name on."""
    return " ".join((*(PROGRAM, *words), *command.collect_usage_pieces(_context(command, words))))


def _context(command: click.Command, words: tuple[str, ...]) -> click.Context:
    return click.Context(command, info_name=" ".join((PROGRAM, *words)))


def options_of(
    command: click.Command, words: tuple[str, ...], *, is_connection: bool
) -> list[tuple[str, str]]:
    """Names and meanings of those of the connection, or of the others."""
    found, context = [], _context(command, words)
    for parameter in command.get_params(context):
        if not isinstance(parameter, click.Option) or "--help" in parameter.opts:
            continue
        record = parameter.get_help_record(context)
        is_common = parameter.opts[0] in _CONNECTION and parameter.name != "bootstrap"
        if record is not None and is_common is is_connection:
            variable = f" (`{parameter.envvar}`)" if parameter.envvar else ""
            found.append((record[0], record[1] + variable))
    return found
