"""Goal: the programs that a review reads growth, changes of the interface and benchmarks from are
right.
Method: known trees and result files; the pages that show them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from tests.bench import growth, plot, report, spark_growth
from tests.bench.results import LOAD_CLIENT, Goal, Result, Round, Sample, to_json
from tests.tools.interface import differences, interface, main
from tests.tools.size import Size, size_of

if TYPE_CHECKING:
    from pathlib import Path


MODULE = '''"""Docstring
of two lines."""

# a comment
x = """no docstring"""  # counts


def f():
    """One line."""
    return 1
'''


def test_docstrings_and_comments_are_no_code_lines() -> None:
    assert size_of(MODULE) == Size(files=1, lines=10, code_lines=6)


def test_the_interface_has_every_kind_and_no_prose() -> None:
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
    before = tmp_path / "before.txt"
    before.write_text("\n".join(interface()) + "\n", encoding="utf-8")
    assert main([str(before)]) == 0
    assert capsys.readouterr().out == ""
    before.write_text("\n".join(["command kafkalog gone", *interface()[1:]]), encoding="utf-8")
    assert main([str(before)]) == 1
    assert "- command kafkalog gone\n" in capsys.readouterr().out
    assert differences(["a", "b"], ["a", "c"]) == ["- b", "+ c"]


RESULT = Result(
    name="example",
    what="Example",
    unit="MB/s",
    durability="acks=1",
    goal=Goal(">= 2x, p99 <= 10 ms", ratio=2, extra_at_most={"p99_ms": 10}),
    rounds=[
        Round(Sample(300.0, 0.5, 1.0, {"p99_ms": 4.0}), Sample(100.0)),
        Round(Sample(100.0, 0.5, 1.0, {"p99_ms": 6.0}), Sample(100.0)),
        Round(Sample(250.0, 0.5, 1.0, {"p99_ms": 9.0}), Sample(100.0)),
    ],
)


def test_pages_and_picture_show_the_result_files() -> None:
    """`python -m tests.bench.report` renews them."""
    for page, text in report.pages(report.load_results()).items():
        assert page.read_text(encoding="utf-8") == text, page


def test_the_page_of_growth_holds_what_was_measured() -> None:
    text = growth.PAGE.read_text(encoding="utf-8")
    assert report.replace_block(text, growth.as_page(growth.written())) == text


def test_the_page_of_growth_of_jobs_holds_what_was_measured() -> None:
    text = spark_growth.PAGE.read_text(encoding="utf-8")
    assert report.replace_block(text, spark_growth.written()) == text


def test_a_job_becomes_a_table_with_a_column_for_each_size() -> None:
    """A row for each figure that the job has; rates are made of counts and seconds."""
    columns = [
        {"records": size, "segments": 16, "seconds": size / 500_000, "tasks": 16, "driver_mb": 95.5}
        for size in (1_250_000, 5_000_000)
    ]
    origin = to_json(RESULT, None)
    found = {"by_records": {"scan": columns}, "by_segments": {}, "on_a_store": {}, "size": 0.25}
    lines = spark_growth.as_page({**origin, **found}).splitlines()
    assert lines[:7] == [
        *("**Records: scan**", "", "| records | 1,250,000 | 5,000,000 |", "| --- | --- | --- |"),
        *("| s | 2.5 | 10 |", "| records/s | 500,000 | 500,000 |", "| tasks | 16 | 16 |"),
    ]
    assert lines[7] == "| driver, MB | 95.5 | 95.5 |"
    assert lines[-1].endswith("one run; 0.25 of the full size.")


def test_a_result_becomes_a_row() -> None:
    content = to_json(RESULT, "4.1.0")
    assert (content["median"], content["min"], content["max"]) == (250, 100, 300)
    assert content["ratio_median"] == 2.5
    assert content["met"] is True
    row = report.render([content]).splitlines()[4]
    assert "250 MB/s (100 to 300); p99 ms 6" in row
    assert "| 100 MB/s (100 to 100) | 2.5x | >= 2x, p99 <= 10 ms | yes |" in row


def test_rows_of_one_client_for_both_sides_come_first() -> None:
    def content(what: str, client: str, name: str = "x", *, alone: bool = False) -> dict[str, Any]:
        rounds = [Round(each.kafkalog) for each in RESULT.rounds] if alone else RESULT.rounds
        changed = dataclasses.replace(RESULT, name=name, what=what, client=client, rounds=rounds)
        return to_json(changed, None)

    results = [
        content("Spark: scan", "", "spark_scan"),
        content("Start", ""),
        content("Alone", LOAD_CLIENT, alone=True),
        content("Client and broker together: produce", "two tools"),
        content("Same", LOAD_CLIENT),
    ]
    lines = report.render(results).splitlines()
    assert tuple(each[3:] for each in lines if each.startswith("## ")) == report.SECTIONS
    names = [each.split(" ")[1] for each in lines if "| 250 MB/s" in each]
    assert names == ["Same", "Produce", "Start", "Alone", "Scan"]
    assert any(each.startswith("| Produce (acks=1; two tools) |") for each in lines)


def test_a_bar_to_the_left_of_the_line_is_slower() -> None:
    text = plot.ratios([("half <as> fast", 0.5), ("twice", 2.0), ("x" * 100, 1.0)])
    bars = [each for each in ElementTree.fromstring(text) if each.tag.endswith("rect")]
    line = next(each for each in ElementTree.fromstring(text) if each.tag.endswith("line"))
    zero = float(line.attrib["x1"])
    assert float(bars[0].attrib["x"]) + float(bars[0].attrib["width"]) == pytest.approx(zero)
    assert float(bars[1].attrib["x"]) == pytest.approx(zero)
    assert [each.attrib["class"] for each in bars] == ["behind", "ahead", "ahead"]
    assert float(bars[0].attrib["width"]) == pytest.approx(float(bars[1].attrib["width"]))


@pytest.mark.parametrize(
    ("change", "met"),
    [
        ({"goal": Goal("", ratio=3)}, False),
        ({"goal": Goal("", at_least=251)}, False),
        ({"goal": Goal("", at_most=250)}, True),
        ({"goal": Goal("", extra_at_most={"p99_ms": 5})}, False),
        ({"goal": Goal("", extra_at_least={"p99_ms": 7})}, False),
        ({"goal": Goal("none")}, None),
        ({"rounds": [Round(Sample(9.0, extra={"p99_ms": 1.0}))]}, None),
    ],
)
def test_every_part_of_a_goal_counts(change: dict[str, Any], met: bool | None) -> None:
    assert dataclasses.replace(RESULT, **change).met() is met
