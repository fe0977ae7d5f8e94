"""Goal: who follows a page of docs/ can run its commands, and sees what it shows.
Method: all commands of a page, word for word but for the port, beside a daemon with data in ./data;
what those of its sessions print against the page, but for times, checksums and durations.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import ROOT
from tests.integration.documented_session import outputs_of, steps_of, without_variables
from tests.operate.documents import name_of, session_pages
from tools.routes_page import routes, routes_page

if TYPE_CHECKING:
    from pathlib import Path

TUTORIAL = ROOT / "docs" / "tutorial" / "first-steps.md"
ROUTES = ROOT / "docs" / "reference" / "http-routes.md"
NAME = re.compile(r'"([\w.-]+)": ?')
CUT = "| head"


@pytest.mark.own_daemon
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", [page for page in session_pages() if page != ROUTES], ids=name_of)
def test_a_page(page: Path, tmp_path: Path) -> None:
    """M01 M07 M09 M10 M17 M26 M28: Every command, and every output that the page shows."""
    steps = steps_of(page.read_text(encoding="utf-8"))
    outputs = outputs_of(steps, tmp_path)
    for step, output in zip(steps, outputs, strict=True):
        if step.output is not None:
            assert without_variables(output) == without_variables(step.output), step.command


def alike(one: object, other: object) -> bool:
    """Two JSON values with the same names; a member that is null or empty may not be there yet."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            any(each in (None, {}, []) for each in pair) or alike(*pair)
            for pair in ((one[name], other[name]) for name in one)
        )
    if isinstance(one, list) and isinstance(other, list):
        return all(alike(one[0], each) for each in other) if one else True
    return type(one) is type(other)


def assert_alike(command: str, shown: str, output: str) -> None:
    """An answer of the page and one of now, whose last line is the status; a cut one has none."""
    if CUT in command:
        assert NAME.findall(shown)[:3] == NAME.findall(output)[:3], command
        assert output.strip(), command
        return
    *shown_lines, shown_status = shown.splitlines()
    *lines, status = output.splitlines()
    assert shown_status == status, f"{command}\n{output}"
    assert len(shown_lines) == len(lines), command
    for before, now in zip(shown_lines, lines, strict=True):
        if before.startswith(("{", "[")):
            assert alike(json.loads(before), json.loads(now)), f"{command}\n{now}"


@pytest.mark.own_daemon
@pytest.mark.timeout(600)
def test_the_routes(tmp_path: Path) -> None:
    """Every route answers its example with this status and these fields."""
    steps = steps_of(ROUTES.read_text(encoding="utf-8"))
    for step, output in zip(steps, outputs_of(steps, tmp_path), strict=True):
        if step.output is not None:
            assert_alike(step.command, step.output, output)


def test_the_page_of_routes_is_current() -> None:
    """`make docs` writes headings; a new route needs a request by hand, and its answer."""
    text = ROUTES.read_text(encoding="utf-8")
    assert text == routes_page(text)
    sections = text.split("\n### `")[1:]
    assert len(sections) == len(routes())
    assert [
        each.partition("`")[0] for each in sections if "```console\n$ curl -s" not in each
    ] == []


def test_another_answer_is_noticed() -> None:
    shown = '{"moves":[{"size":1,"ended":null}]}\n200\n'
    assert_alike("curl", shown, '{"moves":[{"size":2,"ended":5}]}\n200\n')
    for other in (
        '{"moves":[{"size":2}]}\n200\n',
        shown.replace("200", "404"),
        '{"moves":[""]}\n200\n',
    ):
        with pytest.raises(AssertionError):
            assert_alike("curl", shown, other)


def test_the_tutorial_is_among_them() -> None:
    assert TUTORIAL in session_pages()
    assert len(steps_of(TUTORIAL.read_text(encoding="utf-8"))) > 30
