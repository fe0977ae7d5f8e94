"""Goal: who follows ARCHITECTURE.md or a decision into the tree finds what the page names.
Method: every path and symbol in backticks, against the files; what keeps the pages readable.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
CHANGELOG = ROOT / "CHANGELOG.md"
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
PAGES = [ARCHITECTURE, *DECISIONS]
TESTS = ROOT / "tests"
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BASES = [ROOT, ROOT / "kafkalog"]
LINE_LENGTH_MAX = 150
# `log/unified_log.py`, `log/unified_log.py:UnifiedLog.append`
FILE = re.compile(r"`([\w./]+\.py)(?::([\w.]+)| [^`]+)?`")
FOLDER = re.compile(r"`(\w[\w./]*)/`")
DEFINITION = r"^\s*(?:(?:async )?def|class) {name}\b|^\s*{name}\b\s*[:=]"


def missing_of(text: str, bases: Sequence[Path] = BASES) -> list[str]:
    missing = []
    for path, symbol in FILE.findall(text):
        files = [base / path for base in bases if (base / path).is_file()]
        if not files:
            missing.append(path)
            continue
        source = files[0].read_text(encoding="utf-8")
        missing += [
            f"{path}:{name}"
            for name in filter(None, symbol.split("."))
            if not re.search(DEFINITION.format(name=re.escape(name)), source, re.MULTILINE)
        ]
    folders = FOLDER.findall(text)
    missing += [each for each in folders if not any((base / each).is_dir() for base in bases)]
    return missing


@pytest.mark.parametrize(
    "page", [ARCHITECTURE, *GUIDES], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_files_and_symbols_exist(page: Path) -> None:
    """A rename of a file or a symbol also changes the pages that lead to it."""
    assert missing_of(page.read_text(encoding="utf-8")) == []


def test_files_of_the_tests_exist() -> None:
    """A rename of a test also changes the page that says where it is."""
    folders = [path for path in TESTS.iterdir() if path.is_dir()]
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    assert missing_of(text, [ROOT, TESTS, *folders]) == []


def test_every_folder_of_the_package_is_described() -> None:
    """A new folder says in ARCHITECTURE.md what it owns."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    package = ROOT / "kafkalog"
    folders = {
        path.parent.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if path.parent != package
    }
    # Below these, the entry of the folder itself names what is in it.
    listed = {each for each in folders if each.split("/")[0] not in {"cli", "console", "spark"}}
    listed |= {each.split("/")[0] for each in folders}
    assert [each for each in sorted(listed) if f"`{each}/`" not in text] == []


@pytest.mark.parametrize(
    "page", [*PAGES, CHANGELOG], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_lines_are_ordinary(page: Path) -> None:
    """A line that an editor shows whole."""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        assert len(line) <= LINE_LENGTH_MAX, f"line {number} has {len(line)} characters"


def test_the_check_sees_what_is_missing() -> None:
    page = (
        "`log/no_such.py`, `log/unified_log.py:UnifiedLog.append`, `log/unified_log.py:NoSuch`, "
        "`log/no_such/` and `log/segment/`"
    )
    assert missing_of(page) == ["log/no_such.py", "log/unified_log.py:NoSuch", "log/no_such"]
