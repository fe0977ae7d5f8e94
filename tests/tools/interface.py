"""What users program against, one item a line: ``python -m tests.tools.interface [BEFORE]``.

Routes with their parameters, bodies and answers as `/openapi.json` has them, commands with their
options, metric names with type and labels, settings with default and type, error numbers. Texts
that explain are left out. With the file of an earlier run it prints what differs, and its exit
status is 1 when something does: a step that changes no behaviour shows that with it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kafkalog.__main__ import root_command
from kafkalog.server.app import ROUTE_TABLES
from kafkalog.server.protocol.openapi import describe
from tools.errors_page import errors_page
from tools.metrics_page import metrics_page
from tools.settings_page import configuration_page

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROSE = ("summary", "description", "title", "examples", "example")


def interface() -> list[str]:
    """Every line, sorted and without doubles."""
    lines = set(_leaves("openapi", describe(ROUTE_TABLES, version="any")))
    lines.update(_commands(root_command(), ("kafkalog",)))
    lines.update(_cells("metric", metrics_page(), count=3))
    lines.update(_cells("setting", configuration_page(), count=4))
    lines.update(_cells("error", errors_page(), count=4))
    return sorted(lines)


def _leaves(path: str, value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            is_prose = key in _PROSE and isinstance(inner, str | list)
            if not is_prose:
                yield from _leaves(f"{path} {key}", inner)
    elif isinstance(value, list):
        for inner in value:
            name = inner.get("name", "") if isinstance(inner, dict) else ""
            yield from _leaves(f"{path} [{name}]", inner)
    else:
        yield f"{path} = {value!r}"


def _commands(command: click.Command, words: tuple[str, ...]) -> Iterator[str]:
    name = "command " + " ".join(words)
    yield name
    for parameter in command.params:
        kind = "option" if isinstance(parameter, click.Option) else "argument"
        spelled = " ".join((*parameter.opts, *parameter.secondary_opts))
        yield f"{name} {kind} {spelled} {parameter.type.name} {parameter.required}"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for child in command.list_commands(context):
            inner = command.get_command(context, child)
            assert inner is not None
            yield from _commands(inner, (*words, child))


def _cells(kind: str, page: str, *, count: int) -> Iterator[str]:
    """The first cells of the rows of a page's tables."""
    for line in page.splitlines():
        if line.startswith(("| `", "| 4", "| 5")):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            yield f"{kind} " + " | ".join(cells[:count])


def differences(before: list[str], now: list[str]) -> list[str]:
    """Lines that went, with a minus; then lines that came, with a plus."""
    gone = [f"- {line}" for line in sorted({*before} - {*now})]
    return gone + [f"+ {line}" for line in sorted({*now} - {*before})]


def main(arguments: list[str]) -> int:
    now = interface()
    if not arguments:
        sys.stdout.write("\n".join(now) + "\n")
        return 0
    changed = differences(Path(arguments[0]).read_text(encoding="utf-8").splitlines(), now)
    sys.stdout.write("".join(f"{line}\n" for line in changed))
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
