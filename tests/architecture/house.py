"""The rules of the house as functions of a tree: each gives one line for every violation."""

from __future__ import annotations

import ast
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

FOLDER_FILES_MAX = 15
FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 60
FEATURE_RINGS = ("broker", "server", "console", "cli")


def name_of(root: Path, module: Path) -> str:
    return module.relative_to(root).as_posix()


def modules_of(package: Path) -> list[Path]:
    return sorted(package.rglob("*.py"))


def parsed(module: Path) -> ast.Module:
    return _parsed(module.read_text(encoding="utf-8"))


@lru_cache(maxsize=2000)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


# ---- sizes


def crowded_folders(root: Path, trees: Iterable[str]) -> list[str]:
    """Folders with more Python files than a reader takes in; ``__init__`` is not counted."""
    counts = Counter(
        name_of(root, module.parent)
        for tree in trees
        for module in modules_of(root / tree)
        if module.name != "__init__.py"
    )
    return [
        f"{folder} has {count} files"
        for folder, count in sorted(counts.items())
        if count > FOLDER_FILES_MAX
    ]


def long_files(root: Path, trees: Iterable[str]) -> list[str]:
    return [
        f"{name_of(root, module)} has {length} lines"
        for tree in trees
        for module in modules_of(root / tree)
        if (length := len(module.read_text(encoding="utf-8").splitlines())) > FILE_LINES_MAX
    ]


def long_functions(root: Path, trees: Iterable[str]) -> list[str]:
    return [
        f"{name_of(root, module)}: {node.name} has {length} lines"
        for tree in trees
        for module in modules_of(root / tree)
        for node in ast.walk(parsed(module))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]


def many_texts(root: Path, limits: Mapping[str, int]) -> list[str]:
    return [
        f"{pattern} has {count} files, {limit} are allowed"
        for pattern, limit in limits.items()
        if (count := len(list(root.glob(pattern)))) > limit
    ]


def long_texts(root: Path, limits: Mapping[str, int]) -> list[str]:
    """Documents with more lines than they may have; a limit may name a glob."""
    return [
        f"{name_of(root, path)} has {length} lines, {limit} are allowed"
        for pattern, limit in limits.items()
        for path in sorted(root.glob(pattern))
        if (length := len(path.read_text(encoding="utf-8").splitlines())) > limit
    ]


# ---- imports


def imports_of(package: Path) -> dict[str, set[str]]:
    """Which modules each module of a package imports, by dotted name.

    Imports for types alone and those inside of functions count. Importing a module does not count
    as an import of the packages around it.
    """
    modules = {_dotted(package, path): path for path in modules_of(package)}
    return {name: set(_imported(path, name, modules)) - {name} for name, path in modules.items()}


def circles(graph: Mapping[str, Collection[str]]) -> list[tuple[str, ...]]:
    """The largest sets of modules that all import each other, directly or by way of others."""
    reached = {name: _reached(graph, name) for name in graph}
    return sorted(
        {
            tuple(sorted(each for each in reached[name] if name in reached[each]))
            for name in graph
            if name in reached[name]
        }
    )


def _dotted(package: Path, module: Path) -> str:
    parts = module.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(module: Path, name: str, modules: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            source = node.module or ""
            for alias in node.names:
                member = f"{source}.{alias.name}"
                found = member if member in modules else source
                if found in modules:
                    yield found


def _reached(graph: Mapping[str, Collection[str]], start: str) -> set[str]:
    """What a module imports, also by way of others; itself only in a circle."""
    reached, todo = set[str](), [start]
    while todo:
        new = set(graph[todo.pop()]) - reached
        reached |= new
        todo += new
    return reached


# ---- names


def unknown_features(
    package: Path, features: Collection[str], own: Mapping[str, Collection[str]]
) -> list[str]:
    """Folders of the outer rings whose name is no feature, nor one of the ring's ``own``."""
    return [
        f"{ring}/{folder.name} is no feature that the rings share"
        for ring in FEATURE_RINGS
        for folder in sorted((package / ring).iterdir())
        if folder.is_dir() and any(folder.glob("*.py"))
        if folder.name not in features and folder.name not in own.get(ring, ())
    ]
