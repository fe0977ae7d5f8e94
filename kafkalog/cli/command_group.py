"""CommandGroup: a group of commands whose help tells each with a whole sentence.

Click cuts the lines of a list of commands where the terminal ends, which loses just what a command
does with the data.
"""

from __future__ import annotations

import click

_SENTENCE_MAX = 1_000


class CommandGroup(click.Group):
    """See the module."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command with its first sentence, on as many lines as that takes."""
        named = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(limit=_SENTENCE_MAX))
            for name, command in named
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)
