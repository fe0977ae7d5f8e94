"""Topic configs on the command line: ``--config key=value``."""

from __future__ import annotations

import click


def config_pairs(texts: tuple[str, ...]) -> list[tuple[str, str]]:
    """Names and values in the order given; usage error for what is no key=value."""
    pairs = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise click.UsageError(f"--config takes key=value, not '{text}'")
        pairs.append((name.strip(), value.strip()))
    return pairs
