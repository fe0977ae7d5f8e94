"""Goal: the two programs that a review reads growth and changes of the interface from are right.
Method: small files counted by hand; the interface against itself, with a line taken out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.tools.interface import differences, interface, main
from tests.tools.size import Size, size_of, sizes

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

MODULE = '''"""Docstring
of two lines."""

# a comment
x = """no docstring"""  # counts


def f():
    """One line."""
    return 1
'''


def test_docstrings_and_comments_are_no_code_lines() -> None:
    """Blank lines count."""
    assert size_of(MODULE) == Size(files=1, lines=10, code_lines=6)


def test_a_folder_is_counted_without_its_subfolders(tmp_path: Path) -> None:
    """Each folder has a row of its own."""
    (tmp_path / "kafkalog" / "log").mkdir(parents=True)
    (tmp_path / "kafkalog" / "a.py").write_text("a = 1\n", encoding="utf-8")
    (tmp_path / "kafkalog" / "log" / "b.py").write_text(MODULE, encoding="utf-8")
    assert sizes(tmp_path) == {"kafkalog": Size(1, 1, 1), "kafkalog/log": Size(1, 10, 6)}


def test_the_interface_has_every_kind_and_no_prose() -> None:
    """Routes, commands, metrics, settings and errors; each line once."""
    lines = interface()
    assert lines == sorted(set(lines))
    assert {line.split(" ", 1)[0] for line in lines} == {
        "command", "error", "metric", "openapi", "setting",
    }  # fmt: skip
    assert "command kafkalog topics list" in lines
    assert not [line for line in lines if " description = " in line]


def test_a_difference_is_told_and_is_the_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What went has a minus, what came a plus."""
    before = tmp_path / "before.txt"
    before.write_text("\n".join(interface()) + "\n", encoding="utf-8")
    assert main([str(before)]) == 0
    assert capsys.readouterr().out == ""
    before.write_text("\n".join(["command kafkalog gone", *interface()[1:]]), encoding="utf-8")
    assert main([str(before)]) == 1
    assert "- command kafkalog gone\n" in capsys.readouterr().out
    assert differences(["a", "b"], ["a", "c"]) == ["- b", "+ c"]
