"""Goal: docs/cli.md is the command tree, and every command explains itself.
Method: the page made anew; each command's help.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.__main__ import root_command
from kafkalog.cli.reference import leaves, reference_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
COMMANDS = dict(leaves(root_command()))


def test_the_page_is_current() -> None:
    """Goal: no option is missing or wrong there. Method: compare; `make docs` writes it."""
    assert PAGE.read_text(encoding="utf-8") == reference_page(root_command())


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
