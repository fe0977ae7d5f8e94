"""Goal: docs/cli.md is the command tree, and every command explains itself.
Method: the page made again; each command's help.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkalog.__main__ import root_command
from tools.commands_page import commands_page, leaves

DOCS = Path(__file__).resolve().parents[2] / "docs"
COMMANDS = dict(leaves(root_command()))


def test_the_page_is_current() -> None:
    """No option is missing or wrong there."""
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == commands_page(root_command())


GROUPS = sorted({words[:depth] for words in COMMANDS for depth in range(len(words))})


@pytest.mark.parametrize("words", GROUPS, ids=" ".join)
def test_a_list_of_commands_cuts_no_sentence(words: tuple[str, ...]) -> None:
    """What a command does with the data is not lost on a narrow terminal."""
    result = CliRunner().invoke(root_command(), [*words, "--help"], terminal_width=80)
    assert result.exit_code == 0
    commands = result.output.partition("\nCommands:\n")[2]
    assert commands
    assert "..." not in commands
    assert max(map(len, commands.splitlines())) <= 80


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_explains_itself(words: tuple[str, ...]) -> None:
    """What it does, an example, and each option."""
    command = COMMANDS[words]
    assert command.help
    assert any(part.strip().startswith("Example: ") for part in command.help.split("\n\n"))
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        if parameter.param_type_name == "option":
            assert text, (words, parameter.opts)
