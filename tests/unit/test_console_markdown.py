"""Goal: a runbook in the console says what its file says.
Method: each construct by hand; every runbook, word for word.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kafkalog.console.assets import runbooks
from kafkalog.console.markdown import Block, Span, blocks_of, spans_of
from kafkalog.console.rendering import Frame, render_html
from kafkalog.console.views.daemon import RunbookView, runbooks_view
from tests.unit.test_console_views import page_of
from tests.unit.test_retention import started

RUNBOOKS = runbooks()
ROOT = Path(__file__).resolve().parents[2]


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9_=-]+", text)


@pytest.mark.parametrize("name", sorted(RUNBOOKS))
def test_no_word_is_lost(name: str) -> None:
    text = RUNBOOKS[name]
    shown = [
        span.text
        for block in blocks_of(text)
        for row in block.rows
        for cell in row
        for span in cell
    ]
    source = re.sub(
        r"\]\([^)]*\)|^\|[-| :]+\|$|^#+ |^ *(?:- |\d+\. )", " ", text, flags=re.MULTILINE
    )
    told = words(re.sub(r" \($", "", " ".join(shown)))
    linked = [word for target in re.findall(r"\]\((\.\./[^)]*)\)", text) for word in words(target)]
    assert [each for each in told if each not in {"docs", *linked}] == [
        each for each in words(source) if each not in {"docs", *linked}
    ]
    view = RunbookView(now_ms=0, name=name, text=text)
    html = render_html(view, Frame("/console", "", is_refreshing=False)).decode()
    assert f"<h1>{view.title}</h1>" in html
    for target in re.findall(r'href="/console/runbooks/([^"]+)"', html):
        assert target in RUNBOOKS
    article = html.partition("<article")[2].partition("</article>")[0]
    prose = re.sub(r"<code>.*?</code>|<[^>]+>", "", article, flags=re.DOTALL)
    assert re.findall(r"\*|`|\]\(", prose) == []


def test_the_index_has_every_runbook_by_severity() -> None:
    """The severities are those of the Prometheus rules."""
    view = runbooks_view(started().operations)
    assert {each.name for each in view.runbooks} == RUNBOOKS.keys() - {"README"}
    rules = (ROOT / "deploy" / "prometheus" / "kafkalog.rules.yml").read_text()
    severities = dict(re.findall(r"alert: (\w+).*?severity: (\w+)", rules, re.DOTALL))
    shown = {each.name: each.severity for each in view.runbooks}
    assert {name: shown[name] for name in severities} == severities
    assert list(view.by_severity) == ["critical", "warning", "info", "no alert"]
    html = page_of(view)
    assert html.index("KafkalogDiskCritical") < html.index("KafkalogDiskLow")
    for each in view.runbooks:
        assert f'href="/console/runbooks/{each.name}"' in html


def test_blocks() -> None:
    text = "# A\n\nOne\ntwo:\n\n- x\n  y\n- z\n\n1. n\n\n| a | b |\n|---|---|\n| c | d |\n## B"
    kinds = [(each.kind, len(each.rows), each.level) for each in blocks_of(text)]
    assert kinds == [
        ("heading", 1, 1),
        ("paragraph", 1, 0),
        ("bullets", 2, 0),
        ("numbers", 1, 0),
        ("table", 2, 0),
        ("heading", 1, 2),
    ]
    assert blocks_of(text)[2].rows[0] == [[Span("text", "x y")]]


def test_a_list_follows_its_sentence() -> None:
    assert blocks_of("Do:\n- a") == [
        Block("paragraph", [[[Span("text", "Do:")]]]),
        Block("bullets", [[[Span("text", "a")]]]),
    ]


def test_spans() -> None:
    assert spans_of("*Status > Targets*, 2 * 3 * 4, [`a` b](../c.md), [`d`](disk-full.md)") == [
        Span("emphasis", "Status > Targets"),
        Span("text", ", 2 * 3 * 4, "),
        Span("code", "a"),
        Span("text", " b ("),
        Span("code", "docs/c.md"),
        Span("text", ")"),
        Span("text", ", "),
        Span("link", "d", "disk-full"),
    ]
    assert spans_of("Run `a | b`, **now**: [x](disk-full.md#y), [z](../http.md), [u](#v).") == [
        Span("text", "Run "),
        Span("code", "a | b"),
        Span("text", ", "),
        Span("strong", "now"),
        Span("text", ": "),
        Span("link", "x", "disk-full"),
        Span("text", ", "),
        Span("text", "z ("),
        Span("code", "docs/http.md"),
        Span("text", ")"),
        Span("text", ", "),
        Span("text", "u"),
        Span("text", "."),
    ]
