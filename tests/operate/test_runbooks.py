"""Goal: whoever opens a runbook at night finds pages, commands, routes and settings that exist.
Method: each of them in the text of docs/runbooks against the program's own tables.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import click
import pytest
from aiohttp import web

from kafkalog.__main__ import server
from kafkalog.cli.main import make_cli
from kafkalog.server.app import ROUTE_TABLES
from kafkalog.settings.setting_tables import BROKER_LEVEL, TOPIC_LEVEL
from tests.integration.daemon import ROOT
from tests.operate.deployed import (
    RUNBOOKS,
    STOCK,
    documented_names,
    series_names,
)
from tests.operate.prometheus import DEPLOYED, rules_of

if TYPE_CHECKING:
    from pathlib import Path

PAGES = sorted(RUNBOOKS.glob("*.md"))
DOCUMENTS = [*PAGES, *sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
WITHOUT_ALERT = {"disk-full", "rotten-record", "uncleanable-log"}
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def spans(page: Path) -> list[str]:
    """What stands between backticks, on one line each."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", page.read_text())]


def parse(words: list[str], files: Path) -> None:
    """Parse a command line as the program would, without running it; click's error otherwise.

    Words in capitals stand for the reader's own: files that exist, numbers, names.
    """
    placeholders = {"N": "1", "DIR": str(files), "FILE": str(files / "file")}
    root = make_cli()
    root.add_command(server)
    command: click.Command = root
    names = ["kafkalog"]
    context = click.Context(command, info_name="kafkalog")
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, f"no command {words[0]} in {names}"
        command, words = found, words[1:]
        names.append(command.name or "")
    arguments = [placeholders.get(word, word) for word in words]
    command.make_context(" ".join(names), [word.replace("DIR", str(files)) for word in arguments])


def test_a_page_for_each_alert() -> None:
    """Goal: no alert without a page, no page without an alert.

    Method: names of both.
    """
    alerts = {rule["alert"] for rule in rules_of(DEPLOYED / "kafkalog.rules.yml")}
    assert {page.stem for page in PAGES} == alerts | WITHOUT_ALERT
    for page in PAGES:
        assert page.read_text().startswith("# ")


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.stem)
def test_links(page: Path) -> None:
    """Goal: each link leads somewhere, of the other documents too.

    Method: every target that is no address exists beside the page.
    """
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        if not target.startswith(("http:", "https:", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), target


@every_page
def test_commands(page: Path, tmp_path: Path) -> None:
    """Goal: each command line is one that the program takes.

    Method: its own parser, with files in the place of the placeholders; nothing is run.
    """
    (tmp_path / "file").touch()
    (tmp_path / "TOPIC-0").mkdir()
    for span in spans(page):
        if span.startswith("kafkalog "):
            parse(shlex.split(span)[1:], tmp_path)


def test_a_wrong_command_is_found(tmp_path: Path) -> None:
    """Goal: the check of the commands finds what it is there for.

    Method: an unknown command, an unknown option, a missing argument.
    """
    with pytest.raises(AssertionError, match="no command explode"):
        parse(["retention", "explode"], tmp_path)
    for line in (["retention", "run", "--dryrun"], ["retention", "explain"]):
        with pytest.raises(click.UsageError):
            parse(line, tmp_path)


def template(path: str) -> str:
    """A route without the names of its parameters."""
    return re.sub(r"\{[^}]*\}", "{}", path)


@every_page
def test_routes(page: Path) -> None:
    """Goal: each route is one of the daemon.

    Method: the route tables; parameters may be called as the page likes.
    """
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
    """Goal: each setting and each series that is named exists.

    Method: the tables of settings; the generated list of metrics.
    """
    known = documented_names()
    for span in spans(page):
        if re.fullmatch(r"[a-z]+(\.[a-z]+)+(=\S+)?", span) and not span.endswith(".md"):
            assert span.partition("=")[0] in BROKER_LEVEL | TOPIC_LEVEL, span
        for name in series_names(span):
            assert name in known or f"{name}_bucket" in known or STOCK.fullmatch(name), name
