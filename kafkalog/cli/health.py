"""``kafkalog health``: the probe of the container image and of scripts; exit 0 or 1."""

from __future__ import annotations

import click

from kafkalog.cli.connection import Connection, url_option


@click.command()
@click.option("--ready", is_flag=True, help="Ask whether it is ready, not only alive.")
@url_option
def health(ready: bool, url: str) -> None:
    """Exit 0 when the daemon is alive (or, with --ready, ready)."""
    connection = Connection(url, timeout_seconds=3)
    connection.json("GET", "/readyz" if ready else "/livez")
    click.echo("ready" if ready else "alive")
