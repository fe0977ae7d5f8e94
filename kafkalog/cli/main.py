"""The command tree: ``kafkalog <noun> <verb>``. ``server`` is added by ``kafkalog/__main__.py``.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 partly failed, 130 interrupted. Data goes to
standard output, messages to standard error. Commands are imported when they are called, so that a
command without kernels does not wait for numba.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from kafkalog import __version__

_SENTENCE_MAX = 1_000
_INTERRUPTED = 130


class CommandGroup(click.Group):
    """A group whose help prints the whole first sentence of each command.

    Click cuts the sentence at the width of the terminal, and with it what the command does.
    """

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each command with its first sentence, on as many lines as needed."""
        named = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(limit=_SENTENCE_MAX))
            for name, command in named
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def _of(module: str, *commands: str) -> dict[str, str]:
    """Where these commands are: a function of the name in a module of kafkalog.cli."""
    return {name: f"kafkalog.cli.{module}:{name}".replace("-", "_") for name in commands}


_TOOLS = (
    *("configs", "console-consumer", "console-producer", "consumer-groups", "delete-records"),
    *("get-offsets", "log-dirs", "topics"),
)
_DUMP = "kafkalog.cli.offline.dump:dump_command"
# group -> command -> module:attribute
COMMANDS: dict[str, dict[str, str]] = {
    "": {
        **_of("topics", "topics"),
        **_of("configs", "configs", "config"),
        **_of("produce", "produce"),
        **_of("consume", "consume"),
        **_of("dirs", "dirs", "tasks"),
        **_of("records", "offsets"),
        **_of("groups", "groups", "transactions"),
        **_of("backup", "backup", "restore"),
        **_of("connection", "health"),
        **_of("arguments", "completion"),
        **_of("offline.doctor", "doctor"),
    },
    "compact": _of("compact", "plan", "run", "status", "retry", "pause", "resume", "abort"),
    "records": _of("records", "delete"),
    "retention": _of("retention", "explain", "simulate", "run", "archived"),
    "segments": {
        **_of("offline.segments", "accept-loss", "losses", "verify"),
        **_of("offline.repair", "repair"),
        "dump": _DUMP,
        "list": "kafkalog.cli.offline.segments:list_command",
    },
    "auth": _of("backup", "hash-password", "new-token"),
    "compat": {
        **_of("kafka_tools.install", "install"),
        **{f"kafka-{name}": _of(f"kafka_tools.{name}", name)[name] for name in _TOOLS},
        "kafka-dump-log": _DUMP,
    },
    "perf": _of("jobs.perf", "produce", "consume"),
    "spark": {
        **_of("jobs.spark", "audit", "archive", "compact", "stats", "whatif"),
        **_of("jobs.spark_pipeline", "pipeline"),
    },
    "offline": {**_of("offline.scan", "scan"), **_of("offline.load", "load", "compact")},
}
_GROUP_HELP = {
    "compact": "Show what compaction would save and why it does not run; clean by hand.",
    "auth": "Create lines for the credentials file, without a daemon.",
    "records": "Delete records below an offset.",
    "retention": "Show why segments are kept and when they are deleted; run a pass now.",
    "segments": "Inspect segment files without a daemon; list and accept lost offsets with one.",
    "compat": "Kafka's command line tools, with their options, output and exit status.",
    "perf": "Measure how fast the daemon appends and returns records.",
    "spark": "Run jobs over directories of logs, in processes or on Spark.",
    "offline": "Work on copies of partition directories, without a daemon.",
}


class LazyGroup(CommandGroup):
    """A group that imports its commands when they are used."""

    def __init__(self, name: str, help_text: str, lazy: dict[str, str]) -> None:
        # Options show their defaults, but for those of Kafka's tools, which do not either.
        super().__init__(name, help=help_text, context_settings={"show_default": name != "compat"})
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, sorted."""
        return sorted({*super().list_commands(ctx), *self._lazy})

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        """Run the command; an interrupt exits with 130, as shells expect."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import on first use."""
        where = self._lazy.get(cmd_name)
        if where is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = where.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


def make_cli() -> click.Group:
    """The whole tree without ``server``."""
    root = LazyGroup(
        "kafkalog",
        "Topic logs exactly as Apache Kafka keeps them on disk, served over HTTP.",
        COMMANDS[""],
    )
    for group, help_text in _GROUP_HELP.items():
        root.add_command(LazyGroup(group, help_text, COMMANDS[group]))
    return click.version_option(__version__, prog_name="kafkalog")(root)
