"""Shared by Kafka's tools: how they fail, options without effect, and key=value options.

A tool's own errors have Kafka's words and status 1. What click refuses (an unknown option, a
missing value, a value that is not a number) is wrong usage with status 2; Kafka's tools print their
whole help there and end with 1.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kafkalog.cli.connection import Command


class ToolFailed(click.ClickException):
    """The tool's message, alone on its line as the tool prints it; exit status 1."""

    to_stdout = False

    def show(self, file: IO[Any] | None = None) -> None:
        """On the stream that the tool uses, always as UTF-8."""
        click.echo(self.message.encode("utf-8", "replace"), file=file, err=not self.to_stdout)


class ToolFailedOnStdout(ToolFailed):
    """The same on standard output, where some of the tools print their failures."""

    to_stdout = True


_ARGUMENTS = "kafkalog.cli.kafka_tools.arguments"


class ToolCommand(click.Command):
    """A command that keeps its arguments as typed, because tools repeat them in messages."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep a copy, then parse."""
        ctx.meta[_ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


def typed_arguments() -> tuple[str, ...]:
    """The arguments of the running ToolCommand as typed."""
    typed: tuple[str, ...] = click.get_current_context().meta[_ARGUMENTS]
    return typed


def without_effect(*names: str, reason: str) -> Callable[[Command], Command]:
    """Options that scripts pass and that have no effect here; reported on standard error."""

    def tell(_: click.Context, option: click.Parameter, value: str | None) -> None:
        if value is not None:
            click.echo(f"{option.opts[0]} has no effect: {reason}", err=True)

    def decorate(command: Command) -> Command:
        for name in reversed(names):
            help_text = f"No effect: {reason}."
            command = click.option(name, callback=tell, expose_value=False, help=help_text)(command)
        return command

    return decorate


def missing_here(*names: str, is_flag: bool) -> Callable[[Command], Command]:
    """Options that the tool's messages name and that do not exist here; refused when given."""

    def refuse(_: click.Context, option: click.Parameter, value: str | bool | None) -> None:
        if value not in (None, False):
            raise ToolFailed(f"Option {option.opts[0]} does not exist here: docs/kafka-tools.md")

    def decorate(command: Command) -> Command:
        for name in names:
            command = click.option(
                name,
                is_flag=is_flag,
                callback=refuse,
                expose_value=False,
                hidden=True,
                help="Missing here.",
            )(command)
        return command

    return decorate


def key_values(texts: Iterable[str]) -> dict[str, str]:
    """``--property key=value`` options: the last one of a key counts; without = it is empty."""
    parts = (text.partition("=") for text in texts)
    return {key: value for key, _, value in parts}


def is_true(properties: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Whether the property is ``true``, in any letter case."""
    text = properties.get(name)
    return default if text is None else text.strip().lower() == "true"


def report_ignored(properties: Mapping[str, str], known: Iterable[str]) -> None:
    """Name the properties that have no effect on standard error."""
    for name in sorted(properties.keys() - set(known)):
        click.echo(f"The property {name} has no effect here", err=True)
