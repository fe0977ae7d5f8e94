"""Answers about several partitions some of which failed: who and why, and the exit status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

PARTIAL_FAILURE = 3  # exit status: something was done, something was not


def is_failed(entry: dict[str, Any]) -> bool:
    """Whether the entry of a partition is an error entry."""
    return "error_code" in entry


def tell_failures(entries: Iterable[dict[str, Any]]) -> bool:
    """Every failure in a line of its own on standard error; whether there is one."""
    failed = [entry for entry in entries if is_failed(entry)]
    for entry in failed:
        click.echo(f"Error: {entry['topic']}-{entry['partition']}: {entry['error']}", err=True)
    return bool(failed)


def end_with_failures(ctx: click.Context, entries: Iterable[dict[str, Any]]) -> None:
    """Tell every failure; with one the command ends here, partly failed."""
    if tell_failures(entries):
        ctx.exit(PARTIAL_FAILURE)
