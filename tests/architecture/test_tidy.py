"""Goal: the house rules that no linter knows stay true (style: file, function, naming, seams).
Method: read every module of the package as text and as a syntax tree.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.architecture.house import modules_of, name_of, parsed

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kafkalog"
TREES = ("kafkalog", "tests", "tools")
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "process"}
UNFINISHED = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "NotImplemented" + "Error")
OUTSIDE_WORLD = {"os", "time", "random", "threading", "pathlib", "shutil", "tempfile", "subprocess"}
EDGES = {"env", "cli", "client", "server", "settings", "__main__.py", "kernels", "observe"}


def docstring_of(module: Path) -> str:
    return ast.get_docstring(parsed(module)) or ""


def outside_uses(module: Path) -> list[str]:
    """Imports of the outside world, and files that are opened, with their lines."""
    found = []
    for node in ast.walk(parsed(module)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            names = ["os"] if node.func.id == "open" else []
        if {name.split(".")[0] for name in names} & OUTSIDE_WORLD:
            found.append(f"{name_of(PACKAGE, module)} line {getattr(node, 'lineno', 0)}")
    return found


def test_modules_are_named_and_finished() -> None:
    """Goal: no unfinished marks, no catch-all names, and a docstring."""
    for module in modules_of(PACKAGE):
        name, text = name_of(PACKAGE, module), module.read_text(encoding="utf-8")
        assert module.stem not in BANNED_NAMES, name
        assert [mark for mark in UNFINISHED if mark in text] == [], name
        assert docstring_of(module), f"{name} does not say what it owns"


def test_the_outside_world_is_reached_through_env() -> None:
    """Goal: no clock, disk, chance or thread in the inner rings but through kafkalog.env."""
    inner = [
        module
        for module in modules_of(PACKAGE)
        if name_of(PACKAGE, module).split("/")[0] not in EDGES
    ]
    assert len(inner) > 100
    assert [use for module in inner for use in outside_uses(module)] == []


def test_files_that_texts_name_exist() -> None:
    """Goal: a docstring or comment names no file that was renamed or merged."""
    paths = [f"/{name_of(ROOT, path)}" for tree in TREES for path in modules_of(ROOT / tree)]
    unknown = [
        f"{name_of(ROOT, module)} names {name}"
        for module in modules_of(PACKAGE)
        for name in re.findall(r"[\w/]+\.py\b", module.read_text(encoding="utf-8"))
        if not any(path.endswith(f"/{name}") for path in paths)
    ]
    assert unknown == []


def test_a_test_file_opens_with_goal_and_method() -> None:
    """Goal: two lines say what is shown and how."""
    for module in sorted((ROOT / "tests").rglob("test_*.py")):
        docstring = docstring_of(module)
        assert docstring.startswith("Goal:"), module
        assert "Method:" in docstring, module
