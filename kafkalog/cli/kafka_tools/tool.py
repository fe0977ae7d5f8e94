"""What all of Kafka's tools share here: how they fail, and what they say of options without effect.

A tool's own refusals have its words and its status 1. What click refuses (an option that does not
exist, a missing value, no number) is wrong usage with status 2; Kafka's tools print their whole
help there and end with 1.
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
        """Where the tool prints it, UTF-8 whatever is in it."""
        click.echo(self.message.encode("utf-8", "replace"), file=file, err=not self.to_stdout)


class ToolFailedAloud(ToolFailed):
    """The same on standard output, where some of the tools print their failures."""

    to_stdout = True


_ARGUMENTS = "kafkalog.cli.kafka_tools.arguments"


class ToolCommand(click.Command):
    """A command that remembers its arguments as they were typed: tools repeat them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep a copy, then parse."""
        ctx.meta[_ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


def typed_arguments() -> tuple[str, ...]:
    """What was typed behind the name of the command that runs."""
    typed: tuple[str, ...] = click.get_current_context().meta[_ARGUMENTS]
    return typed


def without_effect(*names: str, reason: str) -> Callable[[Command], Command]:
    """Options with a value that scripts pass and that have nothing to act on here: said so."""

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
    """Options of the tool that its messages name and that do not exist here: refused by name."""

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
    """The last one of a key counts; one without ``=`` has the empty value."""
    parts = (text.partition("=") for text in texts)
    return {key: value for key, _, value in parts}


def is_true(properties: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """``true`` in any case; anything else is false."""
    text = properties.get(name)
    return default if text is None else text.strip().lower() == "true"
