"""Files, lines and code lines of every folder: ``python -m tests.tools.size``.

A code line is one that is neither a comment nor part of a docstring; blank ones count. Growth is
a cost, and this is what a review reads it from.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREES = ("kafkalog", "pyspark_kafkalog", "tests", "tools")
_WITH_DOCSTRING = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Size:
    """Of a folder, its subfolders left out."""

    files: int = 0
    lines: int = 0
    code_lines: int = 0

    def add(self, other: Size) -> None:
        """Count the other one here, too."""
        self.files += other.files
        self.lines += other.lines
        self.code_lines += other.code_lines


def size_of(text: str) -> Size:
    lines = text.splitlines()
    prose = {number for number, line in enumerate(lines, 1) if line.lstrip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            prose.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return Size(1, len(lines), len(lines) - len(prose))


def sizes(root: Path) -> dict[str, Size]:
    """Of each folder below the trees that holds Python files, by its path; sorted."""
    found: dict[str, Size] = {}
    for tree in TREES:
        for path in sorted((root / tree).rglob("*.py")):
            folder = path.parent.relative_to(root).as_posix()
            found.setdefault(folder, Size()).add(size_of(path.read_text(encoding="utf-8")))
    return dict(sorted(found.items()))


def main() -> int:
    found = sizes(ROOT)
    width = max(map(len, found))
    sys.stdout.write(f"{'folder':{width}}  files   lines    code\n")
    for tree in TREES:
        total = Size()
        for folder, size in found.items():
            if folder.split("/", 1)[0] == tree:
                total.add(size)
                sys.stdout.write(_row(folder, size, width))
        if total.files:
            sys.stdout.write(_row(f"= {tree}", total, width))
    return 0


def _row(name: str, size: Size, width: int) -> str:
    return f"{name:{width}} {size.files:6} {size.lines:7} {size.code_lines:7}\n"


if __name__ == "__main__":
    sys.exit(main())
