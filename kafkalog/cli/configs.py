"""``kafkalog configs``: of a running daemon, and without one.

``describe`` and ``alter`` ask a daemon; without a terminal their text is that of Kafka's
kafka-configs. ``list`` prints the keys there are, ``show`` the configuration that a daemon would be
started with: a properties file, the environment and --override.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.arguments import config_pairs, topic_config_names, topic_or_option
from kafkalog.cli.connection import (
    Command,
    RequestFailed,
    is_failed,
    message_of,
    with_client_and_output,
)
from kafkalog.cli.main import CommandGroup
from kafkalog.cli.output import (
    TEXT,
    Columns,
    confirm,
    is_asked,
    is_printed,
    output_option,
    print_entries,
    print_rows,
    print_table,
    yes_option,
)
from kafkalog.client import AccessDenied, InvalidRequest
from kafkalog.errors import InvalidConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kafkalog.client import Client
    from kafkalog.settings import Settings

# At commas that are not inside brackets: cleanup.policy=[compact,delete].
_BETWEEN_PAIRS = re.compile(r",(?![^\[]*\])")
_AT_RUN_TIME = "DYNAMIC_"  # begins the source of a config that was set then
_NOT_DYNAMIC = re.compile(r"Cannot update these configs dynamically: Set\((.*?)\)")
_BRACKETS = re.compile(r"^\[(.*)\]$")


def pairs_of(option: str, texts: tuple[str, ...]) -> list[tuple[str, str]]:
    """Names and values of ``k=v,k=[a,b]`` texts, as kafka-configs takes them."""
    texts = tuple(pair for text in texts for pair in _BETWEEN_PAIRS.split(text))
    pairs = config_pairs(
        texts, option, hint="; a value with commas is written in brackets: key=[a,b]"
    )
    return [(name, _BRACKETS.sub(r"\1", value)) for name, value in pairs]


def print_configs(entity: str, entries: list[dict[str, Any]], *, is_all: bool) -> None:
    """Kafka's lines; without is_all only of configs that were set at run time."""
    click.echo(f"{'All' if is_all else 'Dynamic'} configs for {entity} are:")
    for entry in entries:
        if is_all or entry["source"].startswith(_AT_RUN_TIME):
            chain = ", ".join(
                f"{one['source']}:{one['name']}={_text(one['value'])}" for one in entry["synonyms"]
            )
            value = _text(entry["value"])
            click.echo(f"  {entry['name']}={value} sensitive=false synonyms={{{chain}}}")


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _entity(client: Client, topic: str | None, is_broker: bool) -> str:
    """Kafka's name of the entity. Usage error unless exactly one is given."""
    if (topic is None) is not is_broker:
        raise click.UsageError("Give either TOPIC or --broker")
    return f"topic {topic}" if topic is not None else f"broker {client.broker_id()}"


_broker_option = click.option("--broker", "is_broker", is_flag=True, help="Configs of the broker.")
_COLUMNS: Columns = (("CONFIG", "name"), ("VALUE", "value"), ("SOURCE", "source"))
_RETENTION_KEYS = frozenset({"retention.ms", "retention.bytes", "cleanup.policy"})
_SOURCE_OF_TOPIC = "DYNAMIC_TOPIC_CONFIG"
_FORESEEN_MS = 3_600_000  # longer than any cleaner thread waits between two checks
_CHANGE_COLUMNS: Columns = (("CHANGED", "name"), ("BEFORE", "before"), ("NOW", "now"))


@click.group(cls=CommandGroup)
def configs() -> None:
    """Describe and alter configs of a topic or the broker; list keys; show what a start reads."""


@configs.command()
@topic_or_option
@_broker_option
@click.option("--all", "is_all", is_flag=True, help="Also configs that were not set at run time.")
@with_client_and_output
def describe(topic: str | None, is_broker: bool, is_all: bool, client: Client, output: str) -> None:
    """Print the value of each config and its sources.

    --output json has all configs. Without a terminal the lines are those of kafka-configs.

    Example: kafkalog configs describe orders --all
    """
    entity = _entity(client, topic, is_broker)
    entries = client.broker_configs() if topic is None else client.topic_configs(topic)
    shown = [one for one in entries if is_all or one["source"].startswith(_AT_RUN_TIME)]
    if is_printed(output, entries, (one["name"] for one in shown)):
        return
    if output == TEXT:
        print_configs(entity, entries, is_all=is_all)
    elif shown:
        print_entries(_COLUMNS, shown)
    else:
        click.echo(f"No config of {entity} was set at run time; --all shows those in force.")


@configs.command()
@topic_or_option
@_broker_option
@click.option(
    "--config",
    "pairs",
    multiple=True,
    shell_complete=topic_config_names,
    help="Config key=value, as retention.ms=7d; repeatable.",
)
@click.option(
    "--add-config", "added", multiple=True, help="As kafka-configs: k=v,k=[a,b]; repeatable."
)
@click.option("--delete-config", "deleted", multiple=True, help="k,k; repeatable.")
@yes_option
@with_client_and_output
def alter(
    topic: str | None,
    is_broker: bool,
    pairs: tuple[str, ...],
    added: tuple[str, ...],
    deleted: tuple[str, ...],
    is_sure: bool,
    client: Client,
    output: str,
) -> None:
    """Set configs or reset them to their defaults; in force at once, kept over a restart.

    Prints the configs that changed, before and now. When records of the topic become due for
    deletion, says so on standard error, and asks on a terminal.

    Example: kafkalog configs alter orders --config retention.ms=7d
    """
    to_set = dict(config_pairs(pairs)) | dict(pairs_of("--add-config", added))
    to_delete = [name.strip() for text in deleted for name in text.split(",")]
    if not all(to_delete):
        raise click.UsageError("--delete-config takes names, not ''")
    if not to_set and not to_delete:
        raise click.UsageError("Give --config, --add-config or --delete-config")
    entity = _entity(client, topic, is_broker)
    if topic is not None:
        confirm_deletions(client, topic, to_set, to_delete, is_sure=is_sure)
    changes = altered_configs(client, topic, to_set, to_delete)
    if is_printed(output, {"entity": entity, "changes": changes}, names_of_changes(changes)):
        return
    click.echo(f"Completed updating config for {entity}.")
    print_changes(changes)


def confirm_deletions(
    client: Client,
    topic: str,
    to_set: Mapping[str, str],
    to_delete: Sequence[str],
    *,
    is_sure: bool,
) -> None:
    """Say what becomes due by a change of the topic's limits, if anything; ask on a terminal.

    A caller that may not ask for a simulation, or has a wrong value, learns it from the change.
    """
    if _RETENTION_KEYS.isdisjoint({*to_set, *to_delete}):
        return
    try:
        kept = _without_override(client, topic, _RETENTION_KEYS & {*to_delete})
        changed = {name: to_set[name] for name in _RETENTION_KEYS & {*to_set}}
        due = _due_segments(client, topic, {**changed, **kept})
        due -= _due_segments(client, topic, {})
    except (AccessDenied, InvalidRequest):
        return
    if not due:
        return
    size_bytes = sum(size for _, _, size in due)
    segments = f"{len(due)} segment{'' if len(due) == 1 else 's'} ({size_bytes} bytes)"
    sentence = f"The next retention check will delete {segments} more of {topic}."
    if is_asked(is_sure=is_sure):
        confirm(f"{sentence} Alter it?", is_sure=is_sure)
    else:
        click.echo(sentence, err=True)


def _without_override(client: Client, topic: str, names: Iterable[str]) -> dict[str, str]:
    """What these configs of the topic are when they are not set for it, in the topic's units."""
    if not names:
        return {}
    from kafkalog.settings.tables import TOPIC_LEVEL

    values: dict[str, str] = {}
    for entry in client.topic_configs(topic):
        if entry["name"] not in names:
            continue
        inherited = [one for one in entry["synonyms"] if one["source"] != _SOURCE_OF_TOPIC]
        if inherited:
            key, value = inherited[0]["name"], inherited[0]["value"]
            scales = {each.key: each.scale for each in TOPIC_LEVEL[entry["name"]].synonyms}
            scale = scales.get(key, 1)  # log.retention.hours is in hours
            values[entry["name"]] = value if scale == 1 else str(int(value) * scale)
    return values


def _due_segments(
    client: Client, topic: str, configs: Mapping[str, str]
) -> set[tuple[int, int, int]]:
    """Partition, base offset and bytes of what these configs let a check delete now."""
    answer = client.simulate_retention(topic, configs, _FORESEEN_MS, check_interval_ms=1_000)
    return {
        (entry["partition"], each["base_offset"], each["size_bytes"])
        for entry in answer["partitions"]
        if not is_failed(entry)
        for each in entry["segments"]
        if each["due"] is not None and each["due"]["earliest_ms"] <= entry["start_ms"]
    }


def altered_configs(
    client: Client, topic: str | None, to_set: Mapping[str, str], to_delete: Sequence[str]
) -> list[dict[str, Any]]:
    """Alter configs of a topic, or of the broker; those whose value or source is another now.

    By name. A caller that may alter but not describe gets what was asked for.
    """

    def described() -> dict[str, tuple[str | None, str]]:
        """Value and source by name; empty where the caller may not describe."""
        try:
            entries = client.broker_configs() if topic is None else client.topic_configs(topic)
        except AccessDenied:
            return {}
        return {one["name"]: (one["value"], one["source"]) for one in entries}

    before = described()
    if topic is None:
        try:
            client.alter_broker_configs(to_set, to_delete=to_delete)
        except InvalidRequest as error:
            raise RequestFailed(_NOT_DYNAMIC.sub(_at_a_start, message_of(error))) from error
    else:
        client.alter_topic_configs(topic, to_set, to_delete=to_delete)
    _report_ineffective(to_set)
    now = described()
    if not before or not now:
        asked: dict[str, str | None] = {**to_set, **dict.fromkeys(to_delete)}
        return [{"name": name, "before": None, "now": asked[name]} for name in sorted(asked)]
    return [
        {"name": name, "before": before[name][0], "now": now[name][0], "source": now[name][1]}
        for name in sorted(before.keys() & now.keys())
        if before[name] != now[name]
    ]


def _at_a_start(found: re.Match[str]) -> str:
    """That a key is read at a start alone, and which other does the same at once."""
    from kafkalog.settings.tables import BROKER_LEVEL, TOPIC_LEVEL

    key = found[1]
    said = f"{key} cannot be changed while the daemon runs: set it in server.properties and restart"
    for setting in TOPIC_LEVEL.values():  # log.retention.hours: log.retention.ms
        if any(each.key == key and each.scale > 1 for each in setting.synonyms):
            others = [each.key for each in setting.synonyms if BROKER_LEVEL[each.key].dynamic]
            return said + "".join(f", or set {other}, which works at once" for other in others)
    return said


def _report_ineffective(configs: Mapping[str, str]) -> None:
    """Say on standard error which of these are only kept, as min.insync.replicas."""
    from kafkalog.settings.setting import format_value
    from kafkalog.settings.tables import BROKER_LEVEL, TOPIC_LEVEL

    for key, text in configs.items():
        setting = TOPIC_LEVEL.get(key) or BROKER_LEVEL.get(key)
        if setting and not setting.effective and text != format_value(setting.default):
            click.echo(f"{key} has no effect. {setting.doc}", err=True)


def names_of_changes(changes: Iterable[Mapping[str, Any]]) -> list[str]:
    """What ``altered_configs`` found, for --output name."""
    return [change["name"] for change in changes]


def print_changes(changes: Sequence[Mapping[str, Any]]) -> None:
    """A table of what changed; nothing when nothing did."""
    print_rows(
        [heading for heading, _ in _CHANGE_COLUMNS],
        [[change[field] for _, field in _CHANGE_COLUMNS] for change in changes],
        "Nothing changed: every value is as before.",
    )
    for change in changes:
        if "source" in change and change["before"] == change["now"]:
            is_set = change["source"].startswith(_AT_RUN_TIME)
            where = "set at run time; it was the default" if is_set else "the default; it was set"
            click.echo(f"{change['name']}: the value is as before, and now {where}.")


# ---- without a daemon

_MAY_BE_MISSING = "-"  # before a path
_ALLOW_UNKNOWN = f"{__name__}.allow_unknown"


def with_settings_source(command: Command) -> Command:
    """Add PROPERTIES, --override and --allow-unknown.

    The command gets ``properties`` and ``overrides``, ``settings_from`` the other.
    """
    argument = click.argument(
        "properties", type=click.Path(dir_okay=False), nargs=-1, envvar="KAFKALOG_SERVER_PROPERTIES"
    )
    option = click.option(
        "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Repeatable."
    )
    tolerance = click.option(
        "--allow-unknown",
        is_flag=True,
        expose_value=False,
        callback=_note_tolerance,
        help="Warn of keys that look mistyped, instead of an error.",
    )
    return argument(option(tolerance(command)))


def _note_tolerance(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[_ALLOW_UNKNOWN] = value


def settings_from(properties: tuple[str, ...], overrides: tuple[str, ...]) -> Settings:
    """The settings of a daemon that is started with the same arguments in this environment.

    Raises InvalidConfig, and click's errors for a wrong --override or an unreadable file.
    """
    from kafkalog.settings import load_settings

    pairs = dict(config_pairs(overrides, "--override"))
    files = {}
    for name in properties:
        path = name.removeprefix(_MAY_BE_MISSING)
        if path == name or os.path.lexists(path):
            files[path] = _read(path)
    context = click.get_current_context(silent=True)
    allow_unknown = context is not None and context.meta.get(_ALLOW_UNKNOWN, False)
    return load_settings(
        None, os.environ, pairs, _read_text, files=files, allow_unknown=allow_unknown
    )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise click.ClickException(f"Cannot read {path}: {error.strerror}") from error


def _read_text(path: str) -> str:
    """The value in a file that an environment variable names, as text."""
    try:
        return _read(path).decode()
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{path} is not UTF-8 text: {error.reason}") from error


@configs.command("list")
@click.option("--topics", "of_topics", is_flag=True, help="Topic configs instead of the daemon's.")
@output_option
def list_keys(of_topics: bool, output: str) -> None:
    """List every key with its default, sorted; --output json includes what it means. No daemon.

    Example: kafkalog configs list | grep retention
    """
    from kafkalog.settings.setting import format_value
    from kafkalog.settings.tables import BROKER_LEVEL, TOPIC_LEVEL

    table = TOPIC_LEVEL if of_topics else BROKER_LEVEL
    settings = [table[key] for key in sorted(table) if not table[key].internal]
    documents = [
        {
            "name": one.key,
            "default": format_value(one.default),
            "type": one.kind.value,
            "unit": one.unit,
            "valid": one.valid_text,
            "documentation": one.doc,
            "is_own": one.own,
        }
        for one in settings
    ]
    columns = (("KEY", "name"), ("DEFAULT", "default"), ("TYPE", "type"), ("UNIT", "unit"))
    if not is_printed(output, documents, (one.key for one in settings)):
        print_entries(columns, documents)


@configs.command()
@with_settings_source
@click.option("--source", "with_source", is_flag=True, help="Print where each value comes from.")
@click.option("--all", "is_all", is_flag=True, help="Also the defaults.")
@output_option
def show(
    properties: tuple[str, ...],
    overrides: tuple[str, ...],
    with_source: bool,
    is_all: bool,
    output: str,
) -> None:
    """Show the configuration that a daemon would start with, without a daemon.

    --override takes precedence over the environment, and that over PROPERTIES. Warnings go to
    standard error. Exit 1 when a daemon would refuse the configuration.

    Example: kafkalog configs show config/server.properties --source
    """
    from kafkalog.settings.settings import Source

    try:
        settings = settings_from(properties, overrides)
    except InvalidConfig as error:
        raise click.ClickException(error.message) from error
    for notice in settings.notices:
        click.echo(f"{notice.level}: {notice.message}", err=True)
    values = [
        settings.values[key]
        for key in sorted(settings.values)
        if is_all or settings.values[key].source is not Source.DEFAULT
    ]
    documents = [
        {
            "name": one.setting.key,
            "value": one.shown_text,
            "source": one.source.value,
            "origin": one.origin or None,  # the environment variable or file with the value
        }
        for one in values
    ]
    if is_printed(output, documents, (one.setting.key for one in values)):
        return
    if with_source:
        rows = [
            (one.setting.key, one.shown_text, f"{one.source.value} {one.origin}".rstrip())
            for one in values
        ]
        print_table([("KEY", "VALUE", "SOURCE"), *rows])
    else:
        for one in values:
            click.echo(f"{one.setting.key}={'' if one.text is None else one.shown_text}")
