"""The pages for people (README, docs/), read for the tests: links, and lines for the shell.

A command line is read as the shell would split it and parsed by the program's own parser; nothing
is run, and files need not exist. Words in capitals stand for the reader's own.
"""

from __future__ import annotations

import copy
import re
import shlex
import textwrap
from typing import TYPE_CHECKING, NamedTuple

import click

from kafkalog.__main__ import root_command
from tests.integration.daemon import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DOCS = ROOT / "docs"
RUNBOOKS = DOCS / "runbooks"
DECISIONS = DOCS / "decisions"
KINDS = {
    "Tutorial": DOCS / "tutorial",
    "How-to guides": DOCS / "how-to",
    "Reference": DOCS / "reference",
    "Explanation": DOCS / "explanation",
}
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")),
    *sorted(DOCS.rglob("*.md")),
]

_BLOCK = re.compile(
    r"""
    (?:^\ *<!--\ not\ run:\ (?P<reason>[^\n]*?)\ -->\n)?
    ^\ *```(?P<language>\w*)\n(?P<text>.*?)^\ *```$
  | ^<!--\ run\ first\n(?P<first>.*?)^-->$
    """,
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
COMMANDS = ("console", "sh", "bash", "python")  # languages of what a reader pastes
FIRST = "first"  # that of what a reader has already, as topics with records: nothing shows it
_SPAN = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"\w+=.*", re.DOTALL)
# What the shell splits a line into; what is none of it is a quote that is not closed.
_TOKEN = re.compile(
    r"""
    (?P<nothing> \s+ | \#.* )
  | (?P<file> \d* [<>]+ &? )
  | (?P<end> [();|&]+ )
  | (?P<word> (?: [^\s'"\\();|&<>] | \\. | '[^']*' | "(?:[^"\\]|\\.)*" )+ )
    """,
    re.VERBOSE,
)
_READERS_OWN = {"N": "1", "O": "1", "SHELL": "bash"}  # where the parser does not take any word
# Who runs the blocks of a page in a language, below tests/; all others in console and sh are run by
# tests/integration/test_documented_sessions.py.
_README, _SPARK = "integration/test_readme.py", "spark/test_documented_pages.py"
_LAKEHOUSE = "spark/test_lakehouse_story.py"
OWN_TESTS = {
    ("README.md", "sh"): _README,
    ("docs/how-to/back-up-and-restore.md", "sh"): _README,
    ("docs/how-to/archive-to-tables.md", "python"): _SPARK,
    ("docs/how-to/archive-to-tables.md", "sh"): _SPARK,
    ("docs/how-to/read-archived-tables.md", "python"): "spark/test_iceberg_readers.py",
    ("docs/how-to/write-an-application.md", "python"): _README,
    ("docs/reference/client.md", "python"): _README,
    ("docs/reference/http-arrow.md", "python"): "integration/test_http_arrow.py",
    ("docs/reference/http-produce.md", "sh"): _README,
    ("docs/reference/spark-jobs.md", "python"): _SPARK,
    ("docs/reference/spark-sink.md", "python"): _SPARK,
    ("docs/reference/spark.md", "python"): _SPARK,
    ("docs/tutorial/telemetry-into-a-lakehouse.md", "python"): _LAKEHOUSE,
    ("docs/tutorial/telemetry-into-a-lakehouse.md", "sh"): _LAKEHOUSE,
}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


class Block(NamedTuple):
    """``reason``: why no test runs it, as the comment in front of it says; "" when one does."""

    language: str
    text: str
    reason: str


def blocks(page: Path) -> list[Block]:
    return blocks_of(page.read_text(encoding="utf-8"))


def blocks_of(text: str) -> list[Block]:
    return [
        Block(found["language"] or "", textwrap.dedent(found["text"]), found["reason"] or "")
        if found["first"] is None
        else Block(FIRST, found["first"], "")
        for found in _BLOCK.finditer(text)
    ]


def languages_to_run(page: Path) -> set[str]:
    """Of the page's commands that have no reason why nobody runs them."""
    return {each.language for each in blocks(page) if not each.reason} & set(COMMANDS)


def session_pages() -> list[Path]:
    """Pages whose commands are run as one session."""
    return [
        page
        for page in PAGES
        if {"console", "sh"} & languages_to_run(page) and (name_of(page), "sh") not in OWN_TESTS
    ]


def prose(page: Path) -> str:
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def spans(page: Path) -> list[str]:
    """What stands between backticks in the prose, on one line each."""
    return [" ".join(span.split()) for span in _SPAN.findall(prose(page))]


# ---- links


class Link(NamedTuple):
    """Where a link leads: a path beside the page ("" is the page itself), a heading of it or ""."""

    path: str
    anchor: str


def links(page: Path) -> list[Link]:
    """Those that are no addresses."""
    found = []
    for target in _LINK.findall(prose(page)):
        if not target.startswith(("http:", "https:", "mailto:")):
            path, _, anchor = target.partition("#")
            found.append(Link(path, anchor))
    return found


def anchors(page: Path) -> set[str]:
    """Names of the headings, as GitHub makes them."""
    texts = [_LINK.sub("]", heading).lower() for heading in _HEADING.findall(prose(page))]
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


# ---- command lines


def shell_lines(page: Path) -> Iterator[str]:
    """The command lines of the page's blocks for a shell, a continued one joined.

    Of a session (``console``) those behind a prompt: the others are what is printed.
    """
    for language, text, _ in blocks(page):
        lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
        if language == "console":
            yield from (line[2:] for line in lines if line.startswith("$ "))
        elif language in ("", "sh", "bash", FIRST):
            yield from lines


def calls(line: str) -> Iterator[list[str]]:
    """Arguments of each ``kafkalog`` that a shell line runs; a line that is none has none."""
    words: list[str] = []
    is_file = False
    for kind, text in [*_tokens(line), ("end", ";")]:
        if kind == "end":
            yield from _call(words)
            words = []
        elif kind == "word" and not is_file:
            words += shlex.split(text)
        is_file = kind == "file"


def _tokens(line: str) -> list[tuple[str, str]]:
    """Kind and text of each but spaces and comments; none when a quote goes on behind the line."""
    found = []
    place = 0
    while place < len(line):
        token = _TOKEN.match(line, place)
        if token is None:
            return []
        place = token.end()
        if token.lastgroup != "nothing":
            found.append((str(token.lastgroup), token[0]))
    return found


def _call(words: list[str]) -> Iterator[list[str]]:
    while words and _ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    if words and words[0].rpartition("/")[2] == "kafkalog":
        yield words[1:]


def find_command(words: list[str]) -> tuple[click.Command, list[str], list[str]]:
    """The command that the first words name, its names, and the words behind; AssertionError."""
    command: click.Command = root_command()
    names: list[str] = []
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"no command {words[0]} in {['kafkalog', *names]}"
        command, names, words = found, [*names, words[0]], words[1:]
    return command, names, words


def parse(words: list[str]) -> None:
    """Parse a command line as the program would, without running it; click's error otherwise."""
    command, names, rest = find_command(words)
    arguments = [_READERS_OWN.get(word, word) for word in rest]
    _without_files(command).make_context(" ".join(["kafkalog", *names]), arguments)


def _without_files(command: click.Command) -> click.Command:
    """A copy for which files need not exist."""
    copied = copy.copy(command)
    copied.params = [copy.copy(parameter) for parameter in command.params]
    for parameter in copied.params:
        if isinstance(parameter.type, click.Path | click.File):
            parameter.type = click.STRING
    return copied
