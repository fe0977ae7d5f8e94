"""Arguments and options that several commands take, and what a shell completes of them.

Names of topics and topic configs are completed beside commands and options. For topics the daemon
is asked at the address of the command line so far, for a second at most. Without an answer nothing
is completed, because a shell that waits for a word has no place for a message.
"""

from __future__ import annotations

import datetime
import os
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import get_completion_class

from kafkalog.client import ONE_TRY, Client, ClientError
from kafkalog.client.messages import DEFAULT_URL
from kafkalog.format.disk.file_names import LOG_SUFFIX
from kafkalog.format.timestamps import is_before_1970, timestamp_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkalog.cli.connection import Command


def require_partition_directory(directory: str) -> None:
    """Usage error when nothing in the directory is a segment; says where segments are, if below."""
    names = os.listdir(directory)
    if any(name.endswith(LOG_SUFFIX) for name in names):
        return
    inside = sorted(
        name
        for name in names
        if os.path.isdir(os.path.join(directory, name))
        and any(entry.endswith(LOG_SUFFIX) for entry in os.listdir(os.path.join(directory, name)))
    )
    hint = f"; it holds partitions, for example {inside[0]}" if inside else ""
    raise click.UsageError(f"{directory} is no partition directory: no {LOG_SUFFIX} file{hint}")


class Moment(click.ParamType[int]):
    """Milliseconds since 1970, or ISO-8601 with a zone; gives milliseconds."""

    name = "moment"
    kinds = "ms since 1970 or ISO-8601 with a zone, as 2026-01-31T12:00:00Z"

    def convert(
        self,
        value: Any,  # noqa: ANN401 - click's
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int:
        """Usage error for anything else."""
        if isinstance(value, int):
            return value
        found = timestamp_ms(value)
        if found is None and is_before_1970(value):
            self.fail(f"'{value}' lies before 1970, where timestamps begin", param, ctx)
        if found is None:
            self.fail(f"'{value}' is not {self.kinds}", param, ctx)
        return found


def moment_text(moment_ms: int | None) -> str:
    """ISO-8601 in UTC; milliseconds where the calendar ends; - without."""
    if moment_ms is None:
        return "-"
    try:
        moment = datetime.datetime.fromtimestamp(moment_ms // 1000, datetime.UTC)
    except (OverflowError, OSError, ValueError):
        return f"{moment_ms} ms"
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment_ms % 1000:03}Z"


def config_pairs(
    texts: Iterable[str], option: str = "--config", hint: str = ""
) -> list[tuple[str, str]]:
    """Names and values in the order given; usage error for what is no key=value."""
    pairs = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"{option} takes key=value, not '{text}'{hint}")
        pairs.append((name.strip(), value.strip()))
    return pairs


# ---- completion

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


_COMPLETION_SECONDS = 1.0


def topic_names(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Topics that begin so; a daemon that wants a name or a certificate tells nothing."""
    url = ctx.params.get("url") or DEFAULT_URL
    try:
        with Client(url, timeout_seconds=_COMPLETION_SECONDS, retries=ONE_TRY) as client:
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
