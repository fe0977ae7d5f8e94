"""Goal: docs/spark.md tells of every option of the source.
Method: their names, as code, in its table.
"""

from __future__ import annotations

from pathlib import Path

from kafkalog.spark.options import SOURCE_OPTIONS

PAGE = Path(__file__).resolve().parents[2] / "docs/spark.md"


def test_every_option_is_documented() -> None:
    """No option that only the code knows."""
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in SOURCE_OPTIONS if f"`{name}`" not in text] == []
