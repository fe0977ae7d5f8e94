"""Goal: the house rules that no linter knows stay true (style: file, function, naming, seams).
Method: read every module of the package as text and as a syntax tree.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kafkalog"
MODULES = sorted(PACKAGE.rglob("*.py"))
TEST_MODULES = sorted((ROOT / "tests").rglob("test_*.py"))
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "process"}
OUTSIDE_WORLD = {"os", "time", "random", "threading", "pathlib", "shutil", "tempfile", "subprocess"}
EDGES = {"env", "cli", "client", "server", "settings", "__main__.py", "kernels", "observe"}


def name_of(module: Path) -> str:
    """Path below the package."""
    return module.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_module_is_named_and_finished(module: Path) -> None:
    """No unfinished marks, no catch-all names, and a docstring; sizes: ``test_house.py``."""
    text = module.read_text(encoding="utf-8")
    assert module.stem not in BANNED_NAMES
    for mark in ("TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error"):
        assert mark not in text
    assert ast.get_docstring(ast.parse(text)), "a module says what it owns"


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_the_outside_world_is_reached_through_env(module: Path) -> None:
    """No clock, disk, chance or thread in the inner rings except through kafkalog.env."""
    if name_of(module).split("/")[0] in EDGES:
        return
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        found = {name.split(".")[0] for name in names} & OUTSIDE_WORLD
        assert not found, f"line {getattr(node, 'lineno', 0)} imports {found}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "open", f"line {node.lineno} opens a file"


@pytest.mark.parametrize(
    "module", TEST_MODULES, ids=lambda path: path.relative_to(ROOT / "tests").as_posix()
)
def test_a_test_file_opens_with_goal_and_method(module: Path) -> None:
    """Two lines: what is shown and how."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    assert docstring.startswith("Goal:")
    assert "Method:" in docstring
