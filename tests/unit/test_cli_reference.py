"""Goal: docs/cli.md and the manual are the command tree, and every command explains itself.
Method: both pages made anew; each command's help.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkalog.__main__ import root_command
from kafkalog.cli.command_tree import leaves
from kafkalog.cli.man_page import man_page
from kafkalog.cli.reference import reference_page

DOCS = Path(__file__).resolve().parents[2] / "docs"
COMMANDS = dict(leaves(root_command()))


def test_the_page_is_current() -> None:
    """Goal: no option is missing or wrong there. Method: compare; `make docs` writes it."""
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == reference_page(root_command())


def test_the_manual_is_current() -> None:
    """Goal: as above. Method: as above."""
    page = (DOCS / "man" / "kafkalog.1").read_text(encoding="utf-8")
    assert page == man_page(root_command())


def test_the_manual_is_sound_roff() -> None:
    """Goal: no text passes for a request, and no backslash for an escape that nobody meant.

    Method: every line that begins with a dot is a macro of man(7) that the page uses; escapes are
    those of hyphens, quotes, backslashes, fonts and blanks.
    """
    page = man_page(root_command())
    requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests == {
        '.\\"', ".TH", ".SH", ".SS", ".B", ".I", ".RI", ".PP", ".TP", ".EX", ".EE",
    }  # fmt: skip
    body = page.split("\n", 1)[1]
    assert set(re.findall(r"\\(?:\(..|f.|.)", body)) <= {
        r"\-", r"\e", r"\&", r"\(dq", r"\(aq", r"\fB", r"\fR", "\\ ",
    }  # fmt: skip
    for words in COMMANDS:
        assert f'.SS "{" ".join(words)}"'.replace("-", r"\-") in page


GROUPS = sorted({words[:depth] for words in COMMANDS for depth in range(len(words))})


@pytest.mark.parametrize("words", GROUPS, ids=" ".join)
def test_a_list_of_commands_cuts_no_sentence(words: tuple[str, ...]) -> None:
    """Goal: what a command does with the data is not lost on a narrow terminal.
    Method: the help of every group at 80 columns.
    """
    result = CliRunner().invoke(root_command(), [*words, "--help"], terminal_width=80)
    assert result.exit_code == 0
    commands = result.output.partition("\nCommands:\n")[2]
    assert commands
    assert "..." not in commands
    assert max(map(len, commands.splitlines())) <= 80


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_explains_itself(words: tuple[str, ...]) -> None:
    """Goal: what it does, an example, and each option. Method: the texts are there."""
    command = COMMANDS[words]
    assert command.help
    assert any(part.strip().startswith("Example: ") for part in command.help.split("\n\n"))
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        if parameter.param_type_name == "option":
            assert text, (words, parameter.opts)
