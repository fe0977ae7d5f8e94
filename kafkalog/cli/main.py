"""The command tree: ``kafkalog <noun> <verb>``. ``server`` is added by ``kafkalog/__main__.py``.

Exit status: 0 done, 1 failed, 2 wrong usage, 3 partly failed, 130 interrupted. Data goes to
standard output, messages to standard error. Commands are imported when they are called, so that one
which needs no kernel does not wait for numba.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from kafkalog import __version__
from kafkalog.cli.command_group import CommandGroup

_INTERRUPTED = 130

# group -> command -> module:attribute
COMMANDS: dict[str, dict[str, str]] = {
    "": {
        "topics": "kafkalog.cli.topics:topics",
        "configs": "kafkalog.cli.configs:configs",
        "produce": "kafkalog.cli.produce:produce",
        "consume": "kafkalog.cli.consume:consume",
        "dirs": "kafkalog.cli.dirs:dirs",
        "offsets": "kafkalog.cli.offsets:offsets",
        "groups": "kafkalog.cli.groups:groups",
        "tasks": "kafkalog.cli.tasks:tasks",
        "transactions": "kafkalog.cli.transactions:transactions",
        "backup": "kafkalog.cli.backup:backup",
        "restore": "kafkalog.cli.restore:restore",
        "health": "kafkalog.cli.health:health",
        "completion": "kafkalog.cli.completion:completion",
        "config": "kafkalog.cli.config:config",
        "doctor": "kafkalog.cli.doctor.command:doctor",
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
    "records": {"delete": "kafkalog.cli.delete_records:delete"},
    "retention": {
        "explain": "kafkalog.cli.retention:explain",
        "simulate": "kafkalog.cli.retention:simulate",
        "run": "kafkalog.cli.retention:run",
        "archived": "kafkalog.cli.archived:archived",
    },
    "segments": {
        "accept-loss": "kafkalog.cli.losses:accept_loss",
        "dump": "kafkalog.cli.dump_log_segments:dump_command",
        "list": "kafkalog.cli.segments_list:list_command",
        "losses": "kafkalog.cli.losses:losses",
        "repair": "kafkalog.cli.segments_repair:repair",
        "verify": "kafkalog.cli.segments_verify:verify",
    },
    "auth": {
        "hash-password": "kafkalog.cli.auth:hash_password",
        "new-token": "kafkalog.cli.auth:new_token",
    },
    "compat": {
        "install": "kafkalog.cli.compat.install:install",
        "kafka-configs": "kafkalog.cli.compat.configs:configs",
        "kafka-console-consumer": "kafkalog.cli.compat.console_consumer:console_consumer",
        "kafka-console-producer": "kafkalog.cli.compat.console_producer:console_producer",
        "kafka-consumer-groups": "kafkalog.cli.compat.consumer_groups:consumer_groups",
        "kafka-consumer-perf-test": ("kafkalog.cli.compat.consumer_perf_test:consumer_perf_test"),
        "kafka-delete-records": "kafkalog.cli.compat.delete_records:delete_records",
        "kafka-dump-log": "kafkalog.cli.dump_log_segments:dump_command",
        "kafka-get-offsets": "kafkalog.cli.compat.get_offsets:get_offsets",
        "kafka-log-dirs": "kafkalog.cli.compat.log_dirs:log_dirs",
        "kafka-producer-perf-test": ("kafkalog.cli.compat.producer_perf_test:producer_perf_test"),
        "kafka-topics": "kafkalog.cli.compat.topics:topics",
    },
    "perf": {
        "produce": "kafkalog.cli.perf.commands:produce",
        "consume": "kafkalog.cli.perf.commands:consume",
    },
    "spark": {
        "audit": "kafkalog.cli.spark:audit",
        "archive": "kafkalog.cli.spark_archive:archive",
        "pipeline": "kafkalog.cli.spark_pipeline:pipeline",
        "compact": "kafkalog.cli.spark:compact",
        "stats": "kafkalog.cli.spark:stats",
        "whatif": "kafkalog.cli.spark:whatif",
    },
    "offline": {
        "scan": "kafkalog.cli.offline_scan:scan",
        "load": "kafkalog.cli.offline_load:load",
        "compact": "kafkalog.cli.offline_compact:compact",
    },
}
_GROUP_HELP = {
    "compact": "What compaction would save, why it does not run, and cleans by hand.",
    "auth": "Lines for the file of passwords and tokens, without a server.",
    "records": "Delete records below an offset.",
    "retention": "Why segments are still here, when they go, and a pass by hand.",
    "segments": "Look into segment files, without a server; lost offsets, with one.",
    "compat": "Kafka's own tools: their options, their output to the byte, their exit status.",
    "perf": "How fast the daemon takes and gives records, in Kafka's form.",
    "spark": "Jobs over whole directories of logs, in processes or on Spark.",
    "offline": "Work on copies of partition directories, without a server.",
}


class LazyGroup(CommandGroup):
    """A group whose commands are imported when they are needed."""

    def __init__(self, name: str, help_text: str, lazy: dict[str, str]) -> None:
        super().__init__(name, help=help_text)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, sorted."""
        return sorted({*super().list_commands(ctx), *self._lazy})

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - click's
        """Run the command; one that the operator interrupts ends as a shell expects it."""
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
