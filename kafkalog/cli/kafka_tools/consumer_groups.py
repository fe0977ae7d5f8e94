"""``kafkalog compat kafka-consumer-groups``: the tool's options, lines, messages and exit status.

Source: what `org.apache.kafka.tools.consumer.group.ConsumerGroupCommand` of Kafka 4.1 prints;
tests/oracle compares both. The tool ends with status 0 when the broker refuses a request, and
prints the reason on standard output; wrong usage has status 1.

Differs from Kafka: members are the daemon's consumer instances, which have no host and no client
id; no stack trace follows a message; a partition that does not exist is an error at once.
--delete-offsets, --from-file, --export, --by-duration and --to-current are missing: Kafka's
messages name them, and using one is an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli.connection import message_of, name_of
from kafkalog.cli.groups import clipped, readers_and_commits
from kafkalog.cli.kafka_tools.tool import (
    ToolCommand,
    ToolFailed,
    client_of_tool,
    missing_here,
    uncaught,
)
from kafkalog.client import ClientError, UnknownGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kafkalog.client import Client
    from kafkalog.client.admin import ResetPlace

    Row = Sequence[str]

_MISSING = "-"
_NARROW, _WIDE = 15, 25  # the least width of a column
_NOT_FOUND = "org.apache.kafka.common.errors.GroupIdNotFoundException"
_INACTIVE = ("Empty", "Dead")
_NO_ACTION = (
    "WARN: No action will be performed as the --execute option is missing. In a future major"
    " release, the default behavior of this command will be to prompt the user before executing the"
    " reset rather than doing a dry run. You should add the --dry-run option explicitly if you are"
    " scripting this command and want to keep the current default behavior without prompting."
)
_TOPIC = re.compile(r"([^:]+)(?::([0-9]+(?:,[0-9]+)*))?")


class _Refused(Exception):
    """An error that the tool prints after "Error:", with status 0."""


@click.command("kafka-consumer-groups", cls=ToolCommand, unknown=uncaught)
@click.option("--list", "is_list", is_flag=True, help="List the groups.")
@click.option(
    "--describe", "is_describe", is_flag=True, help="Show committed offsets, members or the state."
)
@click.option("--delete", "is_delete", is_flag=True, help="Delete groups without members.")
@click.option(
    "--reset-offsets",
    "is_reset",
    is_flag=True,
    help="Reset the offsets of a group without members.",
)
@click.option("--group", "groups", multiple=True, help="Repeatable.")
@click.option("--all-groups", is_flag=True, help="All groups.")
@click.option("--state", is_flag=True, help="With --list or --describe: the state of each.")
@click.option("--members", is_flag=True, help="With --describe: the members.")
@click.option("--offsets", is_flag=True, help="With --describe: committed offsets; the default.")
@click.option("--verbose", is_flag=True, help="With --offsets: also the leader epoch.")
@click.option("--topic", "topics", multiple=True, help="To reset: NAME or NAME:0,1. Repeatable.")
@click.option("--all-topics", is_flag=True, help="To reset: all topics that the group committed.")
@click.option("--to-earliest", is_flag=True, help="To the log start offsets.")
@click.option("--to-latest", is_flag=True, help="To the end of each log.")
@click.option("--to-offset", type=int, help="To this offset, inside the log.")
@click.option("--shift-by", type=int, help="Forward by this number of offsets; negative: back.")
@click.option("--to-datetime", help="To the first record at or after 2026-01-31T12:00:00.000.")
@click.option(
    "--dry-run", is_flag=True, help="Only show the new offsets; the default, with a warning."
)
@click.option("--execute", is_flag=True, help="Do it.")
@missing_here("--delete-offsets", "--export", "--to-current", is_flag=True)
@missing_here("--from-file", "--by-duration", is_flag=False)
@client_of_tool()
def consumer_groups(
    client: Client,
    is_list: bool,
    is_describe: bool,
    is_delete: bool,
    is_reset: bool,
    groups: tuple[str, ...],
    all_groups: bool,
    state: bool,
    members: bool,
    offsets: bool,
    verbose: bool,
    dry_run: bool,
    execute: bool,
    **reset: Any,  # noqa: ANN401 - the options of a reset, as click gives them
) -> None:
    """As kafka-consumer-groups.sh.

    Example: kafkalog compat kafka-consumer-groups --bootstrap-server localhost:8082 --describe
    --group billing
    """
    if is_reset and not dry_run and not execute:
        click.echo(_NO_ACTION, err=True)
    actions = {"describe": is_describe, "delete": is_delete, "reset-offsets": is_reset}
    for action in (name for name, is_chosen in actions.items() if is_chosen):
        if not groups and not all_groups:
            raise ToolFailed(f"Option [{action}] takes one of these options: [all-groups], [group]")
    if is_describe and members + offsets + state > 1:
        raise ToolFailed(
            "Option [describe] takes at most one of these options: [members], [offsets], [state]"
        )
    if is_reset and dry_run and execute:
        raise ToolFailed("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if is_list + sum(actions.values()) != 1:
        raise ToolFailed(
            "Command must include exactly one action: --list, --describe, --delete,"
            " --delete-offsets, --reset-offsets"
        )
    try:
        if is_list:
            _list(client, with_state=state)
            return
        named = sorted(
            {each["group"] for each in client.list_groups()} if all_groups else set(groups)
        )
        if is_delete:
            _delete(client, named)
        elif is_reset:
            _reset(client, named, is_executed=execute, **reset)
        elif state:
            _describe_states(client, named)
        else:
            _describe(client, named, with_members=members, is_verbose=verbose)
    except _Refused as refused:
        click.echo(f"\nError: {refused}")
    except ClientError as error:
        click.echo(f"\nError: Executing consumer group command failed due to {message_of(error)}")


def _width(least: int, cells: Iterable[str]) -> int:
    return max([least, *map(len, cells)])


def _print_rows(rows: Sequence[Row], widths: Sequence[int]) -> None:
    """Pad every column that has a width, also the last one."""
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(" ".join(cells))


def _list(client: Client, *, with_state: bool) -> None:
    found = {each["group"]: each for each in client.list_groups()}
    names = sorted(found)
    if not with_state:
        for name in names:
            click.echo(name)
        return
    rows = [("GROUP", "STATE"), *((name, found[name]["state"]) for name in names)]
    _print_rows(rows, (_width(_NARROW, names) + 10, 20))


def _described(client: Client, group: str) -> dict[str, Any]:
    try:
        return client.describe_group(group)
    except UnknownGroup as error:
        raise _Refused(
            f"Executing consumer group command failed due to {_NOT_FOUND}: Group {group} not found."
        ) from error


def _describe(
    client: Client, groups: Sequence[str], *, with_members: bool, is_verbose: bool
) -> None:
    for found in [_described(client, group) for group in sorted(groups)]:
        _report_inactive(found)
        if with_members:
            _print_members(found)
        elif found["offsets"] or found["members"]:
            _print_offsets(found, is_verbose=is_verbose)


def _report_inactive(found: dict[str, Any]) -> None:
    if found["state"] in _INACTIVE:
        click.echo(f"\nConsumer group '{found['group']}' has no active members.", err=True)


def _print_offsets(found: dict[str, Any], *, is_verbose: bool) -> None:
    readers, commits = readers_and_commits(found)
    headings = [
        "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID",
        "HOST", "CLIENT-ID",
    ]  # fmt: skip
    rows = [headings]
    for key in sorted(
        commits.keys() | readers.keys(), key=lambda each: (each not in readers, each)
    ):
        commit = commits.get(key, {})
        numbers = [_cell(commit.get(name)) for name in ("offset", "log_end_offset", "lag")]
        reader = readers.get(key, _MISSING)
        rows.append([found["group"], key[0], str(key[1]), *numbers, reader, _MISSING, _MISSING])
    group, topic, reader_id = (_width(_NARROW, [row[at] for row in rows]) for at in (0, 1, 6))
    widths = [group, topic, 10, 15, 15, 15, reader_id, _NARROW, 0]
    if is_verbose:
        for number, row in enumerate(rows):
            epoch = commits.get((row[1], int(row[2])), {}).get("leader_epoch") if number else None
            row.insert(3, _cell(epoch) if number else "LEADER-EPOCH")
        widths.insert(3, 15)
    click.echo()
    _print_rows(rows, widths)


def _print_members(found: dict[str, Any]) -> None:
    rows = [("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "")]
    rows += [
        (found["group"], each["instance_id"], _MISSING, _MISSING, str(len(each["partitions"])), "")
        for each in found["members"]
    ]
    group, reader = (_width(_NARROW, [row[at] for row in rows]) for at in (0, 1))
    click.echo()
    _print_rows(rows, (group, reader, _NARROW, _NARROW, 15, 0))


def _describe_states(client: Client, groups: Sequence[str]) -> None:
    where = f"{client.address.host}:{client.address.port}  ({client.broker_id()})"
    for found in [_described(client, group) for group in sorted(groups)]:
        _report_inactive(found)
        heads = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
        row = (found["group"], where, _MISSING, found["state"], str(len(found["members"])))
        widths = (_width(_NARROW, [found["group"]]), _width(_WIDE, [where]), 20, 20, 0)
        click.echo()
        _print_rows((heads, row), widths)


def _delete(client: Client, groups: Sequence[str]) -> None:
    failed: dict[str, str] = {}
    for group in groups:
        try:
            client.delete_group(group)
        except UnknownGroup:
            failed[group] = f"{_NOT_FOUND}: The group id does not exist."
        except ClientError as error:
            failed[group] = message_of(error)
    if not failed:
        named = ", ".join(f"'{group}'" for group in groups)
        click.echo(f"Deletion of requested consumer groups ({named}) was successful.")
        return
    click.echo("\nError: Deletion of some consumer groups failed:")
    for group, reason in failed.items():
        click.echo(f"* Group '{group}' could not be deleted due to: {reason}")
    done = [f"'{group}'" for group in groups if group not in failed]
    if done:
        click.echo(f"\nThese consumer groups were deleted successfully: {', '.join(done)}")


def _reset(
    client: Client,
    groups: Sequence[str],
    *,
    is_executed: bool,
    topics: tuple[str, ...],
    all_topics: bool,
    **place: Any,  # noqa: ANN401 - as above
) -> None:
    to, value = _place(**place)
    if not topics and not all_topics:
        raise ToolFailed("One of the reset scopes should be defined: --all-topics, --topic.")
    wanted = dict(map(_topic_of, topics))
    rows = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")]
    for group in groups:
        offsets = _new_offsets(client, group, wanted, to, value)
        if is_executed:
            client.commit_offsets(group, offsets)
        for topic, partition in sorted(offsets):
            rows.append((group, topic, str(partition), str(offsets[topic, partition])))
    click.echo()
    _print_rows(rows, (30, 30, 10, 15))


def _place(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
) -> tuple[ResetPlace, int | str | None]:
    """The target of a reset, and its value, in the names of the HTTP API."""
    time = to_datetime
    if time is not None and not re.search(r"(Z|[+-]\d\d:?\d\d)$", time):
        time += "Z"
    places: list[tuple[ResetPlace, int | str | None, bool]] = [
        ("earliest", None, to_earliest),
        ("latest", None, to_latest),
        ("offset", to_offset, to_offset is not None),
        ("shift", shift_by, shift_by is not None),
        ("timestamp", time, time is not None),
    ]
    found = [(place, value) for place, value, is_given in places if is_given]
    if len(found) != 1:
        raise ToolFailed(
            "Option '[reset-offsets]' requires one of the following scenarios: [[to-offset],"
            " [to-current], [to-datetime], [from-file], [by-duration], [to-earliest], [to-latest],"
            " [shift-by]]"
        )
    return found[0]


def _topic_of(text: str) -> tuple[str, frozenset[int]]:
    """A topic and its partitions; none: all."""
    found = _TOPIC.fullmatch(text)
    if found is None:
        raise ToolFailed(f"Invalid topic: {text}")
    return found[1], frozenset(map(int, found[2].split(",") if found[2] else ()))


def _new_offsets(
    client: Client,
    group: str,
    wanted: dict[str, frozenset[int]],
    to: ResetPlace,
    value: int | str | None,
) -> dict[tuple[str, int], int]:
    """The new offsets by partition. Raises _Refused."""
    try:
        state = client.describe_group(group)["state"]
    except UnknownGroup:
        if not wanted:
            return {}
        state = _INACTIVE[0]
    if state not in _INACTIVE:
        raise _Refused(
            f"Assignments can only be reset if the group '{group}' is inactive, but the current"
            f" state is {state}."
        )
    entries = client.reset_group_offsets(group, to, value, topics=list(wanted) or None)
    # Before anything is committed: a reset of nothing would look like success.
    named = {(topic, number) for topic, numbers in wanted.items() for number in numbers}
    missing = named - {(each["topic"], each["partition"]) for each in entries}
    if missing:
        absent = ",".join(f"{topic}-{number}" for topic, number in sorted(missing))
        reason = f'due to The partitions "{absent}" do not exist'
        raise _Refused(f"Executing consumer group command failed {reason}")
    offsets: dict[tuple[str, int], int] = {}
    for each in entries:
        numbers = wanted.get(each["topic"]) or frozenset({each["partition"]})
        if each["partition"] not in numbers:
            continue
        if "error" in each:
            raise _Refused(f"Executing consumer group command failed due to {each['error']}")
        offsets[each["topic"], each["partition"]] = each["new_offset"]
        for asked, is_above, _ in clipped([each], to, value):
            bound = "higher than latest" if is_above else "lower than earliest"
            click.echo(
                f"WARN New offset ({asked}) is {bound} offset for topic partition"
                f" {name_of(each)}. Value will be set to {each['new_offset']}",
                err=True,
            )
    return offsets


def _cell(value: int | None) -> str:
    return _MISSING if value is None or value < 0 else str(value)
