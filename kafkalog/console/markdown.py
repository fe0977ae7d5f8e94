"""The Markdown that the runbooks are written in, as blocks for a template. Pure.

Headings, paragraphs, lists, tables; in them code, strong, emphasis and links. Nothing else is
understood: it stays as it was written. A template prints blocks escaped, as everything else.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_HEADING = re.compile(r"(#{1,4}) +(.*)")
_ITEM = re.compile(r"(?:[-*]|(\d+)\.) +(.*)")
_RULE = re.compile(r"\|[-| :]+\|")
_SPAN = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*(?!\s)([^*]+)(?<!\s)\*|\[([^\]]+)\]\(([^)\s]+)\)")
_RUNBOOK = re.compile(r"([A-Za-z-]+)\.md(?:#.*)?")


class Span(NamedTuple):
    """Text of one kind: text, code, strong, emphasis, or a link to the runbook ``target``."""

    kind: str
    text: str
    target: str = ""


class Block(NamedTuple):
    """``kind``: heading, paragraph, bullets, numbers or table.

    rows   of a heading or paragraph one with one cell, of a list an item each, of a table with its
           head first; a cell is its spans
    level  of a heading
    """

    kind: str
    rows: list[list[list[Span]]]
    level: int = 0


def blocks_of(text: str) -> list[Block]:
    """The document from its first line to its last."""
    found, lines = list[Block](), list[str]()
    for line in [*text.splitlines(), ""]:
        heading = _HEADING.fullmatch(line)
        if heading or not line.strip():
            if lines:
                found += _blocks(lines)
                lines = []
            if heading:
                found.append(Block("heading", [[spans_of(heading[2])]], len(heading[1])))
        else:
            lines.append(line)
    return found


def _blocks(lines: list[str]) -> list[Block]:
    """Of lines without an empty one: a table, or a paragraph and the list that follows it."""
    if lines[0].startswith("|"):
        rows = [line for line in lines if not _RULE.fullmatch(line)]
        cells = [[spans_of(cell.strip()) for cell in row.strip("|").split("|")] for row in rows]
        return [Block("table", cells)]
    found, words, items, is_numbered = list[Block](), list[str](), list[list[str]](), False
    for line in lines:
        item = None if line.startswith(" ") else _ITEM.fullmatch(line)
        if item:
            is_numbered = item[1] is not None
            items.append([item[2]])
        elif items:
            items[-1].append(line.strip())
        else:
            words.append(line)
    if words:
        found.append(Block("paragraph", [[spans_of(" ".join(words))]]))
    if items:
        kind = "numbers" if is_numbered else "bullets"
        found.append(Block(kind, [[spans_of(" ".join(item))] for item in items]))
    return found


def spans_of(text: str) -> list[Span]:
    """A link that leads to no runbook is its words, and where it leads as code."""
    found, at = list[Span](), 0
    for match in _SPAN.finditer(text):
        if match.start() > at:
            found.append(Span("text", text[at : match.start()]))
        at = match.end()
        code, strong, emphasis, words, target = match.groups()
        if code is not None:
            found.append(Span("code", code))
        elif strong is not None:
            found.append(Span("strong", strong))
        elif emphasis is not None:
            found.append(Span("emphasis", emphasis))
        elif runbook := _RUNBOOK.fullmatch(target):
            found.append(Span("link", words.replace("`", ""), runbook[1]))
        elif target.startswith("#"):
            found.append(Span("text", words))
        else:
            *first, last = spans_of(words)
            is_text = last.kind == "text"
            found += first if is_text else [*first, last]
            found += [
                Span("text", f"{last.text} (" if is_text else " ("),
                Span("code", f"docs/{target.lstrip('./')}"),
                Span("text", ")"),
            ]
    if at < len(text):
        found.append(Span("text", text[at:]))
    return found
