"""Goal: who follows a page of docs/ can run its commands, and sees what it shows.
Method: all commands of a page, word for word but for the port, beside a daemon with data in ./data;
what those of its sessions print against the page, but for times, checksums and durations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import ROOT
from tests.integration.documented_session import outputs_of, steps_of, without_variables
from tests.operate.documents import name_of, session_pages

if TYPE_CHECKING:
    from pathlib import Path

TUTORIAL = ROOT / "docs" / "tutorial" / "first-steps.md"


@pytest.mark.own_daemon
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", session_pages(), ids=name_of)
def test_a_page(page: Path, tmp_path: Path) -> None:
    """M01 M07 M09 M10 M17 M26 M28: Every command, and every output that the page shows."""
    steps = steps_of(page.read_text(encoding="utf-8"))
    outputs = outputs_of(steps, tmp_path)
    for step, output in zip(steps, outputs, strict=True):
        if step.output is not None:
            assert without_variables(output) == without_variables(step.output), step.command


def test_the_tutorial_is_among_them() -> None:
    assert TUTORIAL in session_pages()
    assert len(steps_of(TUTORIAL.read_text(encoding="utf-8"))) > 30
