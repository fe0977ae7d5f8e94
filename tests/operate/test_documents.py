"""Goal: the pages and runbooks lead where they say, show commands that exist, and leave nothing
out.
Method: README and docs/ against the program's own tables: its parser, routes, settings, files.

That docs/reference/configuration.md, metrics.md, cli.md and errors.md have every setting, metric,
command and error is shown beside their generators: tests/unit/test_settings.py, test_metrics.py,
test_cli.py, tests/integration/test_error_register.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
import pytest
from aiohttp import web

from kafkalog.server.app import ROUTE_TABLES
from kafkalog.settings.tables import BROKER_LEVEL, TOPIC_LEVEL
from tests.integration.daemon import ROOT
from tests.operate.deployed import STOCK, documented_names, series_names
from tests.operate.documents import (
    COMMANDS,
    DECISIONS,
    DOCS,
    FIRST,
    KINDS,
    OWN_TESTS,
    PAGES,
    RUNBOOKS,
    anchors,
    blocks,
    calls,
    find_command,
    languages_to_run,
    links,
    name_of,
    parse,
    session_pages,
    shell_lines,
    spans,
)
from tests.operate.prometheus import DEPLOYED, rules_of

if TYPE_CHECKING:
    from pathlib import Path

INDEX = DOCS / "README.md"
INDEXES_BESIDE = [ROOT / "examples" / "README.md", ROOT / "tests" / "README.md"]
FIRST_WORDS = ("archive", "cleanup", "delete", "file", "log", "quota", "retention", "segment")
# Usage lines of cli.md; a line of the log.
NO_CALL = re.compile(r"\[OPTIONS\]|COMMAND|^kafkalog is ready$")
REASONS = (
    "needs another machine",
    "needs a product that is not installed here",
    "changes this machine",
    "takes hours",
)
EXCUSED_MAX = 15
every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


# ---- links


@pytest.mark.parametrize("page", [*PAGES, *INDEXES_BESIDE], ids=name_of)
def test_links(page: Path) -> None:
    for link in links(page):
        target = (page.parent / link.path).resolve() if link.path else page
        assert target.exists(), link.path
        assert target.is_relative_to(ROOT), link.path
        if link.anchor:
            assert link.anchor in anchors(target), link


def test_the_names_of_headings(tmp_path: Path) -> None:
    """The check of links knows a heading as a browser does."""
    page = tmp_path / "page.md"
    text = "# A `key.name`, twice?\n\n```sh\n# no heading\n```\n\n## A [link](x.md) too\n"
    page.write_text(f"{text}\n## `GET /`\n")
    assert anchors(page) == {"a-keyname-twice", "a-link-too", "get-"}


@every_page
def test_the_site_shows_what_an_editor_shows(page: Path) -> None:
    """MkDocs' Markdown wants a blank line before a list, and four spaces before what is in one."""
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^[^\s#|*<-][^\n]*:\n(?=- |1\. )", text, re.MULTILINE) == []
    assert re.findall(r"^ {1,3}```|\n\n {1,3}\S.*", text, re.MULTILINE) == []


# ---- the index


def test_the_index_has_every_page() -> None:
    text = INDEX.read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == [*KINDS, "Project"]
    linked = [link.path for link in links(INDEX) if not link.path.startswith("..")]
    assert len(linked) == len(set(linked))
    for kind, folder in KINDS.items():
        for page in folder.glob("*.md"):
            assert f"]({folder.name}/{page.name})" in sections[kind], page
    others = {page.name for page in DOCS.glob("*.md")} - {INDEX.name}
    assert {*others, "runbooks/README.md", "decisions/README.md"} <= set(linked)
    listed = [link.path for link in links(DECISIONS / "README.md") if "/" not in link.path]
    assert sorted([*listed, "README.md"]) == [each.name for each in sorted(DECISIONS.glob("*.md"))]


def test_every_page_is_in_a_folder_of_its_kind() -> None:
    """Beside the index, only the pages whose addresses others hold are not in a folder."""
    assert {page.name for page in DOCS.glob("*.md")} == {"README.md", "benchmarks.md", "mission.md"}
    folders = {page.parent for page in DOCS.rglob("*.md")}
    assert folders == {DOCS, RUNBOOKS, DECISIONS, *KINDS.values()}


# ---- command lines


@every_page
def test_commands_of_blocks(page: Path) -> None:
    for line in shell_lines(page):
        for words in calls(line):
            parse(words)


@every_page
def test_commands_in_the_text(page: Path) -> None:
    """Commands that the text names exist; those that have arguments are whole."""
    for span in spans(page):
        if not re.match(r"(\.venv/bin/)?kafkalog ", span) or NO_CALL.search(span):
            continue
        for words in calls(span):
            command, _, rest = find_command([word for word in words if word != "..."])
            if rest or page.parent == RUNBOOKS:
                assert not isinstance(command, click.Group), span
                parse(words)


@every_page
def test_each_command_is_run_or_says_why_not(page: Path) -> None:
    """A block that no test takes, or a command in a block of another language."""
    for language in languages_to_run(page):
        test = OWN_TESTS.get((name_of(page), language), "")
        if not test and language == "console":
            test = OWN_TESTS.get((name_of(page), "sh"), "")
        if test:
            assert page.name in (ROOT / "tests" / test).read_text(encoding="utf-8")
        else:
            assert page in session_pages()
            assert language in ("console", "sh")
    for block in blocks(page):
        assert block.reason in {"", *REASONS}
        if page.name == "cli.md":
            continue  # the examples of the commands' own help; they are parsed
        assert block.language, block.text
        if block.language not in (*COMMANDS, FIRST):
            assert not re.search(r"^(\$ |kafkalog |curl |docker )", block.text, re.MULTILINE)


def test_few_commands_are_not_run() -> None:
    excused = [each for page in PAGES for each in blocks(page) if each.reason]
    assert len(excused) <= EXCUSED_MAX
    assert {each.language for each in excused} <= set(COMMANDS)


def test_wrong_commands_are_found() -> None:
    with pytest.raises(AssertionError, match="no command explode"):
        parse(["retention", "explode"])
    for line in (
        ["retention", "run", "--dryrun"],
        ["retention", "explain"],
        ["topics", "create", "orders", "--partitions", "many"],
    ):
        with pytest.raises(click.UsageError):
            parse(line)
    parse(["doctor", "no/such.properties"])  # files are the reader's


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("kafkalog tasks list", [["tasks", "list"]]),
        ("A=1 .venv/bin/kafkalog health  # alive?", [["health"]]),
        ("echo 'a;b' | kafkalog produce t -K ';' && ls", [["produce", "t", "-K", ";"]]),
        ("kafkalog a > kafkalog; kafkalog b < in", [["a"], ["b"]]),
        ("kafkalog.registry", []),
        ("log.dirs=./data", []),
        ("it's no shell line: kafkalog x", []),
    ],
)
def test_how_a_line_is_read(line: str, found: list[list[str]]) -> None:
    """No command hides behind a pipe, an assignment or a comment."""
    assert list(calls(line)) == found


# ---- what is documented


def tail(path: str) -> str:
    """A route from its last word on, without names of parameters: pages shorten what is before."""
    parts = re.sub(r"\{[^}]*\}", "{}", path).split("/")
    last = max(index for index, part in enumerate(parts) if part != "{}")
    return "/".join(parts[last:])


def test_every_route_is_documented() -> None:
    words = {
        re.sub(r"\{[^}]*\}", "{}", word.rstrip(",.;")).partition("?")[0]
        for page in PAGES
        for span in spans(page)
        for word in span.split()
        if "/" in word or ":" in word
    }
    routes = [route for table in ROUTE_TABLES for route in table]
    paths = {route.path for route in routes if isinstance(route, web.RouteDef)} - {"/"}
    # A page of the console and its JSON twin are documented together.
    paths -= {f"{path}.json" for path in paths}
    ends = {path: tail(path) for path in paths}
    assert [
        path
        for path, end in sorted(ends.items())
        if not any(word == end or word.endswith(f"/{end}") for word in words)
    ] == []


@every_page
def test_settings_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for key in re.findall(rf"(?<![\w.])((?:{'|'.join(FIRST_WORDS)})(?:\.[a-z]+)+)=", text):
        assert key in BROKER_LEVEL | TOPIC_LEVEL, key


RUNBOOK_PAGES = sorted(set(RUNBOOKS.glob("*.md")) - {RUNBOOKS / INDEX.name})
WITHOUT_ALERT = {"damaged-log-dir", "disk-full", "lost-offsets", "rotten-record", "uncleanable-log"}
ON_DISK = {"kafkalog.registry", "meta.properties", "cluster.id", "directory.id"}  # no settings
every_runbook = pytest.mark.parametrize("page", RUNBOOK_PAGES, ids=lambda page: page.stem)


def test_a_page_for_each_alert() -> None:
    alerts = {rule["alert"] for rule in rules_of(DEPLOYED / "kafkalog.rules.yml")}
    assert {page.stem for page in RUNBOOK_PAGES} == alerts | WITHOUT_ALERT
    listed = [link.path for link in links(RUNBOOKS / INDEX.name)]
    assert sorted(listed) == [page.name for page in RUNBOOK_PAGES]
    for page in RUNBOOK_PAGES:
        assert page.read_text().startswith("# ")


def template(path: str) -> str:
    """A route without the names of its parameters."""
    return re.sub(r"\{[^}]*\}", "{}", path)


@every_runbook
def test_routes(page: Path) -> None:
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


@every_runbook
def test_settings_and_metrics(page: Path) -> None:
    known = documented_names()
    for span in set(spans(page)) - ON_DISK:
        if re.fullmatch(r"[a-z]+(\.[a-z]+)+(=\S+)?", span) and not span.endswith(".md"):
            assert span.partition("=")[0] in BROKER_LEVEL | TOPIC_LEVEL, span
        for name in series_names(span):
            assert name in known or f"{name}_bucket" in known or STOCK.fullmatch(name), name
