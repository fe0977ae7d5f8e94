"""``kafkalog completion``: what makes a shell complete this command."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

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
