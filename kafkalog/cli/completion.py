"""``kafkalog completion``: what makes a shell complete this command.

What a shell completes beyond commands and options: names of topics and of topic configs.

The daemon is asked for topics as the command line so far says, for a second at most. Whatever keeps
it from answering completes nothing: a shell that waits for a word has no place for a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

from kafkalog.client import ONE_TRY, Client, ClientError
from kafkalog.client.messages import DEFAULT_URL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalog.cli.connection import Command


PROGRAM = "kafkalog"
_VARIABLE = "_KAFKALOG_COMPLETE"  # click's name for it, of the program's


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what makes SHELL complete commands, options, topics and topic configs.

    bash and zsh: source <(kafkalog completion bash) in the start file. fish: into
    ~/.config/fish/completions/kafkalog.fish.

    Example: kafkalog completion fish > ~/.config/fish/completions/kafkalog.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root().command
    click.echo(kind(root, {}, PROGRAM, _VARIABLE).source())


_TIMEOUT_SECONDS = 1.0


def topic_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Topics that begin so; a daemon that wants a name or a certificate tells nothing."""
    url = ctx.params.get("url") or DEFAULT_URL
    try:
        with Client(url, timeout_seconds=_TIMEOUT_SECONDS, retries=ONE_TRY) as client:
            return _beginning(client.list_topics(), incomplete)
    except (ClientError, ValueError):
        return []


def topic_config_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Keys that begin so, each with the sign that its value follows."""
    from kafkalog.settings.tables import TOPIC_LEVEL

    return _beginning([f"{key}=" for key in TOPIC_LEVEL], incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in sorted(names) if name.startswith(incomplete)]


def topic_argument(name: str = "topic", *, required: bool = True) -> Callable[[Command], Command]:
    """The name of a topic."""
    return click.argument(name, required=required, shell_complete=topic_names)


def topic_configs_option() -> Callable[[Command], Command]:
    """``--config key=value``, which the command gets as ``configs``."""
    return click.option(
        "--config",
        "configs",
        multiple=True,
        shell_complete=topic_config_names,
        help="Topic config key=value; repeatable.",
    )
