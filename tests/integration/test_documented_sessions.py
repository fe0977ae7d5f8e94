"""Goal: who follows the tutorial sees what it shows.
Method: its commands, word for word but for the port, beside a daemon with data in ./data; what they
print against the page, but for moments, checksums and durations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.daemon import ROOT
from tests.integration.documented_session import outputs_of, steps_of, without_variables

if TYPE_CHECKING:
    from pathlib import Path

TUTORIAL = ROOT / "docs" / "tutorial" / "first-steps.md"


@pytest.mark.own_daemon
@pytest.mark.timeout(400)
def test_the_tutorial(tmp_path: Path) -> None:
    """M01 M07 M09 M10 M17 M26 M28: Every output."""
    steps = steps_of(TUTORIAL.read_text(encoding="utf-8"))
    assert len(steps) > 30
    outputs = outputs_of(steps, tmp_path)
    for step, output in zip(steps, outputs, strict=True):
        assert without_variables(output) == without_variables(step.output), step.command
