"""Arguments and options that several commands take, and what a shell completes of them.

Names of topics and topic configs are completed beside commands and options. For topics the daemon
is asked at the address of the command line so far, for a second at most. Without an answer nothing
is completed, because a shell that waits for a word has no place for a message.
"""

from __future__ import annotations

import functools
import os
import re
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import click
from click.shell_completion import get_completion_class

from kafkalog.client import ONE_TRY, Client, ClientError
from kafkalog.client.messages import DEFAULT_URL
from kafkalog.format.disk.file_names import LOG_SUFFIX
from kafkalog.format.integers import INT64_MAX
from kafkalog.format.quantities import DURATIONS, SIZES, duration_ms, size_bytes
from kafkalog.format.timestamps import is_before_1970, timestamp_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalog.cli.connection import Command

PROGRAM = "kafkalog"
_COMPLETION_VARIABLE = "_KAFKALOG_COMPLETE"  # click's name for it, of the program's
_COMPLETION_SECONDS = 1.0


# ---- types of values


TIMESTAMP_KINDS = "ms since 1970 or ISO-8601 with a zone, as 2026-01-31T12:00:00Z"


def timestamp(text: str, kinds: str = TIMESTAMP_KINDS) -> int:
    """Milliseconds since 1970, of such a number or ISO-8601 with a zone; else wrong usage."""
    found = timestamp_ms(text)
    if found is None and is_before_1970(text):
        raise click.BadParameter(f"'{text}' is before 1970, where timestamps begin")
    if found is None:
        raise click.BadParameter(f"'{text}' is not {kinds}")
    return found


def duration(text: str) -> int:
    """Milliseconds, of 30d, 12h, 45m, 30s or 250ms; else wrong usage."""
    found = duration_ms(text)
    if found is None:
        raise click.BadParameter(f"'{text}' is not a duration like {DURATIONS}")
    if found > INT64_MAX:
        raise click.BadParameter(f"'{text}' is more milliseconds than 64 bits can hold")
    return found


class IntRange(click.IntRange):
    """A number in a range. For a text that is none, click says only that it is no integer range."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 - click's
        """See click."""
        try:
            int(value)
        except ValueError:
            limits = "" if self.min is None else f" from {self.min}"
            limits += "" if self.max is None else f" to {self.max}"
            self.fail(f"'{value}' is not a whole number{limits}", param, ctx)
        return super().convert(value, param, ctx)


class _Quantity(click.IntRange):
    """A number, or a text with a unit, in a range."""

    wanted: ClassVar[str]

    @staticmethod
    @abstractmethod
    def parse(text: str) -> int | None:
        """The number of a text with a unit; None when it is none."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 - click's
        """See click."""
        found = self.parse(value) if isinstance(value, str) else None
        if found is None and not str(value).isdigit():
            self.fail(f"'{value}' is not {self.wanted}", param, ctx)
        return super().convert(value if found is None else found, param, ctx)


class Size(_Quantity):
    """Bytes, as a number or as 64MiB, in a range."""

    name = "size"
    wanted = f"a number of bytes or a size like {SIZES}"
    parse = staticmethod(size_bytes)


class Milliseconds(_Quantity):
    """Milliseconds, as a number or as 30s, in a range."""

    name = "duration"
    wanted = f"a number of milliseconds or a duration like {DURATIONS}"
    parse = staticmethod(duration_ms)


def config_pairs(
    texts: Iterable[str], option: str = "--config", hint: str = ""
) -> list[tuple[str, str]]:
    """Names and values of key=value texts in their order; usage error for any other text."""
    pairs = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"{option} takes key=value, not '{text}'{hint}")
        pairs.append((name.strip(), value.strip()))
    return pairs


# ---- completion


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands, options, topics and topic configs.

    bash and zsh: source <(kafkalog completion bash) in the start file. fish: into
    ~/.config/fish/completions/kafkalog.fish.

    Example: kafkalog completion fish > ~/.config/fish/completions/kafkalog.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root().command
    click.echo(kind(root, {}, PROGRAM, _COMPLETION_VARIABLE).source())


def topic_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Topics that begin so; none of a daemon that requires credentials or a certificate."""
    url = ctx.params.get("url") or DEFAULT_URL
    try:
        with Client(url, timeout_seconds=_COMPLETION_SECONDS, retries=ONE_TRY) as client:
            return _beginning(client.list_topics(), incomplete)
    except (ClientError, ValueError):
        return []


def topic_config_names(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Topic configs that begin so, each with the = before its value."""
    from kafkalog.settings.tables import TOPIC_LEVEL

    return _beginning([f"{key}=" for key in TOPIC_LEVEL], incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in sorted(names) if name.startswith(incomplete)]


# ---- arguments and options


def topic_argument(name: str = "topic", *, required: bool = True) -> Callable[[Command], Command]:
    """The name of a topic."""
    return click.argument(name, required=required, shell_complete=topic_names)


def topic_or_option(command: Command) -> Command:
    """TOPIC as an argument; the former spelling --topic stays, hidden. None without both."""

    @functools.wraps(command)
    def with_topic(
        *args: object, topic: str | None, topic_option: str | None, **options: object
    ) -> None:
        if topic is not None and topic_option is not None:
            raise click.UsageError("Give TOPIC once: --topic is its former spelling")
        command(*args, topic=topic if topic_option is None else topic_option, **options)

    hidden = click.option(
        "--topic",
        "topic_option",
        hidden=True,
        shell_complete=topic_names,
        help="Former spelling of TOPIC.",
    )
    return topic_argument(required=False)(hidden(with_topic))


topic_configs_option = click.option(
    "--config",
    "configs",
    multiple=True,
    shell_complete=topic_config_names,
    help="Topic config key=value, as retention.ms=7d; repeatable.",
)
partition_option = click.option(
    "--partition", type=IntRange(min=0), help="Default: all partitions of the topic."
)
partitions_option = click.option(
    "--partition", "numbers", type=IntRange(min=0), multiple=True, help="Default: all."
)
include_internal_option = click.option(
    "--include-internal",
    "with_internal",
    is_flag=True,
    help="In the table also list each partition of internal topics, as __consumer_offsets.",
)
isolation_option = click.option(
    "--isolation",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="read_committed: ignore records of open and aborted transactions.",
)
acks_option = click.option(
    "--acks", type=click.Choice(["all", "1", "0"]), help="Default: the daemon's."
)
before_time_option = click.option(
    "--before-time",
    type=timestamp,
    help="Delete records before the first one at or after this time.",
)


def execute_option(command: Command) -> Command:
    """Do it, else only show it: ``execute``; and ``is_sure``, for ``confirm``."""

    @functools.wraps(command)
    def with_execute(
        *args: object, execute: bool, is_sure: bool, dry_run: bool, **options: object
    ) -> None:
        if dry_run and (execute or is_sure):
            raise click.UsageError("--dry-run only shows it: leave out --execute and --yes")
        command(*args, execute=execute or is_sure, is_sure=is_sure, **options)

    execution = click.option(
        "--execute", is_flag=True, help="Do it; asks on a terminal. Default: only show it."
    )
    sure = click.option("--yes", "-y", "is_sure", is_flag=True, help="Do it, and do not ask.")
    shown = click.option("--dry-run", is_flag=True, help="Only show it, which is the default.")
    return execution(sure(shown(with_execute)))


def check_partition_directory(directory: str) -> None:
    """Usage error for a directory without segments; it names one below that has some."""
    names = os.listdir(directory)
    if _has_segment(names):
        return
    partitions = sorted(
        name
        for name in names
        if os.access(path := os.path.join(directory, name), os.R_OK)
        and os.path.isdir(path)
        and _has_segment(os.listdir(path))
    )
    hint = f"; it holds partitions, for example {partitions[0]}" if partitions else ""
    wanted = f"no {LOG_SUFFIX} file whose name is an offset of 20 digits"
    raise click.UsageError(f"{directory} is not a partition directory: {wanted}{hint}")


def _has_segment(names: Iterable[str]) -> bool:
    return any(re.fullmatch(rf"[0-9]{{20}}{re.escape(LOG_SUFFIX)}", name) for name in names)
