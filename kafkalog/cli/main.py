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


# group -> command -> module:attribute
COMMANDS: dict[str, dict[str, str]] = {
    "": {
        "topics": "kafkalog.cli.topics:topics",
        "configs": "kafkalog.cli.configs:configs",
        "produce": "kafkalog.cli.produce:produce",
        "consume": "kafkalog.cli.consume:consume",
        "dirs": "kafkalog.cli.dirs:dirs",
        "offsets": "kafkalog.cli.records:offsets",
        "groups": "kafkalog.cli.groups:groups",
        "tasks": "kafkalog.cli.dirs:tasks",
        "transactions": "kafkalog.cli.groups:transactions",
        "backup": "kafkalog.cli.backup:backup",
        "restore": "kafkalog.cli.backup:restore",
        "health": "kafkalog.cli.connection:health",
        "completion": "kafkalog.cli.arguments:completion",
        "config": "kafkalog.cli.configs:config",
        "doctor": "kafkalog.cli.offline.doctor:doctor",
    },
    "compact": {
        "plan": "kafkalog.cli.compact:plan",
        "run": "kafkalog.cli.compact:run",
        "status": "kafkalog.cli.compact:status",
        "retry": "kafkalog.cli.compact:retry",
        "pause": "kafkalog.cli.compact:pause",
        "resume": "kafkalog.cli.compact:resume",
        "abort": "kafkalog.cli.compact:abort",
    },
    "records": {"delete": "kafkalog.cli.records:delete"},
    "retention": {
        "explain": "kafkalog.cli.retention:explain",
        "simulate": "kafkalog.cli.retention:simulate",
        "run": "kafkalog.cli.retention:run",
        "archived": "kafkalog.cli.retention:archived",
    },
    "segments": {
        "accept-loss": "kafkalog.cli.offline.segments:accept_loss",
        "dump": "kafkalog.cli.offline.dump:dump_command",
        "list": "kafkalog.cli.offline.segments:list_command",
        "losses": "kafkalog.cli.offline.segments:losses",
        "repair": "kafkalog.cli.offline.repair:repair",
        "verify": "kafkalog.cli.offline.segments:verify",
    },
    "auth": {
        "hash-password": "kafkalog.cli.backup:hash_password",
        "new-token": "kafkalog.cli.backup:new_token",
    },
    "compat": {
        "install": "kafkalog.cli.kafka_tools.install:install",
        "kafka-configs": "kafkalog.cli.kafka_tools.configs:configs",
        "kafka-console-consumer": "kafkalog.cli.kafka_tools.console_consumer:console_consumer",
        "kafka-console-producer": "kafkalog.cli.kafka_tools.console_producer:console_producer",
        "kafka-consumer-groups": "kafkalog.cli.kafka_tools.consumer_groups:consumer_groups",
        "kafka-delete-records": "kafkalog.cli.kafka_tools.delete_records:delete_records",
        "kafka-dump-log": "kafkalog.cli.offline.dump:dump_command",
        "kafka-get-offsets": "kafkalog.cli.kafka_tools.get_offsets:get_offsets",
        "kafka-log-dirs": "kafkalog.cli.kafka_tools.log_dirs:log_dirs",
        "kafka-topics": "kafkalog.cli.kafka_tools.topics:topics",
    },
    "perf": {
        "produce": "kafkalog.cli.jobs.perf:produce",
        "consume": "kafkalog.cli.jobs.perf:consume",
    },
    "spark": {
        "audit": "kafkalog.cli.jobs.spark:audit",
        "archive": "kafkalog.cli.jobs.spark_archive:archive",
        "pipeline": "kafkalog.cli.jobs.spark_pipeline:pipeline",
        "compact": "kafkalog.cli.jobs.spark:compact",
        "stats": "kafkalog.cli.jobs.spark:stats",
        "whatif": "kafkalog.cli.jobs.spark:whatif",
    },
    "offline": {
        "scan": "kafkalog.cli.offline.scan:scan",
        "load": "kafkalog.cli.offline.load:load",
        "compact": "kafkalog.cli.offline.compact:compact",
    },
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
        super().__init__(name, help=help_text)
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
