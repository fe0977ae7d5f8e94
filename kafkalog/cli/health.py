"""``kafkalog health``: the probe of the container image and of scripts; exit 0 or 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kafkalog.cli.connection import client_within

if TYPE_CHECKING:
    from kafkalog.client import Client


_TIMEOUT_SECONDS = 3.0


@click.command()
@click.option("--ready", is_flag=True, help="Ask whether it is ready, not only alive.")
@client_within(_TIMEOUT_SECONDS)
def health(ready: bool, client: Client) -> None:
    """Exit 0 when the daemon is alive (or, with --ready, ready).

    Example: kafkalog health --ready
    """
    client.call("GET", "/readyz" if ready else "/livez")
    click.echo("ready" if ready else "alive")
