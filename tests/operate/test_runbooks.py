"""Goal: whoever opens a runbook at night finds pages, commands, routes and settings that exist.
Method: each of them in the text of docs/runbooks against the program's own tables.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from kafkalog.server.app import ROUTE_TABLES
from kafkalog.settings.tables import BROKER_LEVEL, TOPIC_LEVEL
from tests.operate.deployed import STOCK, documented_names, series_names
from tests.operate.documents import RUNBOOKS, parse, spans
from tests.operate.prometheus import DEPLOYED, rules_of

if TYPE_CHECKING:
    from pathlib import Path

PAGES = sorted(RUNBOOKS.glob("*.md"))
WITHOUT_ALERT = {
    "damaged-log-dir",
    "disk-full",
    "lost-offsets",
    "rotten-record",
    "uncleanable-log",
}
ON_DISK = {"kafkalog.registry", "meta.properties", "cluster.id", "directory.id"}  # no settings
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def test_a_page_for_each_alert() -> None:
    """No alert without a page, no page without an alert."""
    alerts = {rule["alert"] for rule in rules_of(DEPLOYED / "kafkalog.rules.yml")}
    assert {page.stem for page in PAGES} == alerts | WITHOUT_ALERT
    for page in PAGES:
        assert page.read_text().startswith("# ")


@every_page
def test_commands(page: Path) -> None:
    """Each command is whole: at night nobody looks up what it lacks."""
    for span in spans(page):
        if span.startswith("kafkalog "):
            parse(shlex.split(span)[1:])


def template(path: str) -> str:
    """A route without the names of its parameters."""
    return re.sub(r"\{[^}]*\}", "{}", path)


@every_page
def test_routes(page: Path) -> None:
    """Each route is one of the daemon."""
    routes = [route for table in ROUTE_TABLES for route in table]
    known = {
        f"{route.method} {template(route.path)}"
        for route in routes
        if isinstance(route, web.RouteDef)
    }
    for span in spans(page):
        if re.match(r"[A-Z]+ /", span):
            assert template(span) in known, span
        elif re.fullmatch(r"/[a-z0-9/{}:.-]+", span) and not span.startswith("/backup"):
            assert f"GET {template(span)}" in known, span


@every_page
def test_settings_and_metrics(page: Path) -> None:
    """Each setting and each series that is named exists."""
    known = documented_names()
    for span in set(spans(page)) - ON_DISK:
        if re.fullmatch(r"[a-z]+(\.[a-z]+)+(=\S+)?", span) and not span.endswith(".md"):
            assert span.partition("=")[0] in BROKER_LEVEL | TOPIC_LEVEL, span
        for name in series_names(span):
            assert name in known or f"{name}_bucket" in known or STOCK.fullmatch(name), name
