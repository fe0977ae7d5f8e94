"""Goal: the rules of the house hold: sizes, circles, names of features, length of documents. That
no ring imports an outer one is a contract of the import linter.
Method: each checker on the tree, and on a small tree of its own that breaks the rule.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.architecture.house import (
    circles,
    crowded_folders,
    imports_of,
    long_files,
    long_functions,
    long_texts,
    many_texts,
    unknown_features,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kafkalog"
TREES = ("kafkalog", "pyspark_kafkalog", "tools")

CIRCLES_MAX = 5
CIRCLE_FILES_MAX = 3
# A circle that stays: its files, and why no cut makes them better.
CIRCLES: dict[frozenset[str], str] = {}

# What a folder of an outer ring may be called: the features, which all of them share, ...
FEATURES = {
    "backup",
    "compaction",
    "fetch",
    "groups",
    "moves",
    "produce",
    "retention",
    "topics",
    "transactions",
}
# ... and what only one of the rings has.
OWN_FOLDERS = {
    "broker": {"directory", "startup"},
    "server": {"admin", "console", "fast_path", "protocol", "security"},
    "console": {"views"},
    "cli": {"jobs", "kafka_tools", "offline"},
}

TEXT_LIMITS = {
    "ARCHITECTURE.md": 300,
    "README.md": 110,
    "CHANGELOG.md": 80,  # until 0.1.0 is released
    "docs/decisions/*.md": 25,
    "tests/README.md": 120,
}


@cache
def imports() -> dict[str, set[str]]:
    return imports_of(PACKAGE)


# ---- the tree


def test_folders_files_and_functions_have_their_size() -> None:
    """Goal: rule 1."""
    assert crowded_folders(ROOT, TREES) == []
    assert long_files(ROOT, TREES) == []
    assert long_functions(ROOT, TREES) == []


def test_no_files_import_each_other() -> None:
    """Goal: rule 2, imports for types alone included; a circle that stays has its reason."""
    found = [frozenset(each) for each in circles(imports())]
    assert [sorted(circle) for circle in found if circle not in CIRCLES] == []
    assert set(CIRCLES) <= set(found), "cut: take it off the list"
    assert len(CIRCLES) <= CIRCLES_MAX
    assert all(len(circle) <= CIRCLE_FILES_MAX for circle in CIRCLES)
    assert all(CIRCLES.values())


def test_a_feature_has_one_name() -> None:
    """Goal: rule 4."""
    assert unknown_features(PACKAGE, FEATURES, OWN_FOLDERS) == []


def test_documents_have_their_length() -> None:
    """Goal: rule 6."""
    assert long_texts(ROOT, TEXT_LIMITS) == []
    assert many_texts(ROOT, {"docs/decisions/*.md": 30}) == []
    assert all(list(ROOT.glob(pattern)) for pattern in TEXT_LIMITS)


# ---- trees that break a rule


def planted(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def _crowded(root: Path) -> list[str]:
    return crowded_folders(root, ["p"])


def _circles(root: Path) -> list[str]:
    return [" ".join(each) for each in circles(imports_of(root / "p"))]


def _unknown(root: Path) -> list[str]:
    return unknown_features(root / "p", {"retention"}, {"server": {"protocol"}})


FUNCTION = "def long() -> None:\n" + "    pass\n" * 60
FULL = {f"p/a/m{number}.py": "" for number in range(15)} | {"p/a/__init__.py": ""}
TYPES_ONLY = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.a import A\n"
RINGS = dict.fromkeys(("p/broker/m.py", "p/server/m.py", "p/console/m.py", "p/cli/m.py"), "")


@pytest.mark.parametrize(
    ("check", "good", "bad", "violation"),
    [
        (_crowded, FULL, {"p/a/one_more.py": ""}, "p/a has 16 files"),
        (
            lambda root: long_files(root, ["p"]),
            {"p/m.py": "\n" * 800},
            {"p/n.py": "\n" * 801},
            "p/n.py has 801 lines",
        ),
        (
            lambda root: long_functions(root, ["p"]),
            {"p/m.py": FUNCTION.replace("    pass\n", "", 1)},
            {"p/n.py": f"class A:\n    async {FUNCTION}".replace("    pass", "        pass")},
            "p/n.py: long has 61 lines",
        ),
        (
            _circles,
            {"p/a.py": "", "p/b.py": "import p.a", "p/c.py": "from p import a, b"},
            {"p/a.py": "def f():\n    from p.c import C"},
            "p.a p.b p.c",
        ),
        (_circles, {"p/a.py": "import p.b"}, {"p/b.py": TYPES_ONLY}, "p.a p.b"),
        (
            _circles,
            {"p/a/__init__.py": ""},
            {"p/a/__init__.py": "from p.a import m", "p/a/m.py": "from p.a import other"},
            "p.a p.a.m",
        ),
        (
            _unknown,
            RINGS | {"p/server/protocol/m.py": "", "p/cli/retention/m.py": ""},
            {"p/cli/deletion/m.py": ""},
            "cli/deletion is no feature that the rings share",
        ),
        (
            lambda root: long_texts(root, {"A.md": 3, "d/*.md": 2}),
            {"A.md": "\n" * 3, "d/1.md": "\n" * 2},
            {"d/2.md": "\n" * 3},
            "d/2.md has 3 lines, 2 are allowed",
        ),
        (
            lambda root: many_texts(root, {"d/*.md": 1}),
            {"d/1.md": "", "d/1.txt": ""},
            {"d/2.md": ""},
            "d/*.md has 2 files, 1 are allowed",
        ),
    ],
)
def test_a_violation_is_found(
    tmp_path: Path,
    check: Callable[[Path], list[str]],
    good: Mapping[str, str],
    bad: Mapping[str, str],
    violation: str,
) -> None:
    """Goal: no checker passes everything, and none finds what is no violation."""
    assert check(planted(tmp_path, good)) == []
    assert check(planted(tmp_path, bad)) == [violation]
