"""Configs on the command line: ``--config key=value`` and its like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable


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
