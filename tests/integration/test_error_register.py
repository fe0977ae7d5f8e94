"""Goal: every error number of the register is shown by a test, and documented as the code has it.
Method: the numbers that tests of this directory assert as literals, against the register's rows.
"""

from __future__ import annotations

import ast
from pathlib import Path

from kafkalog import errors
from kafkalog.server.protocol.errors import REGISTER, entry_of
from tests.integration.daemon import ROOT
from tools.errors_page import errors_page

# Which argument of each assertion about an answer over HTTP is the number.
ASSERTIONS = {
    "refused": 2,
    "refused_produce": 2,
    "failed_entry": 1,
    "failed_operation": 1,
    "failed_stream": 1,
}


def numbers_asserted_in(module: Path) -> set[int]:
    """Literal numbers in calls of the assertions of errors."""
    numbers = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id in ASSERTIONS:
            number = node.args[ASSERTIONS[node.func.id]]
            if isinstance(number, ast.Constant) and isinstance(number.value, int):
                numbers.add(number.value)
    return numbers


def test_every_number_is_shown() -> None:
    """By a daemon's answer, and none that is not in the register."""
    modules = sorted(Path(__file__).parent.glob("test_*.py"))
    assert set[int]().union(*map(numbers_asserted_in, modules)) == set(REGISTER)


def test_every_error_of_the_inner_rings_has_a_number() -> None:
    """By its own class or an ancestor's; only the root is a defect, and a start answers nobody."""
    pending = [errors.KafkalogError]
    while pending:
        kind = pending.pop()
        if kind.__module__.startswith(("kafkalog.spark.", "kafkalog.jobs.")):
            continue  # no daemon runs them; other tests of the same process loaded them
        pending += kind.__subclasses__()
        if issubclass(kind, errors.CorruptData):
            error = kind("x", file="f", position=0)
        elif issubclass(kind, errors.UnsupportedMessageFormat):
            error = kind("x", base_offset=0, last_offset=0)
        else:
            error = kind("x")
        entry = entry_of(error)
        if kind not in (errors.KafkalogError, errors.InvalidConfig, errors.UnusableLogDirs):
            assert entry.error_code != 50000, kind
    assert entry_of(errors.InvalidTxnState("x")).error_code == 40908


def test_numbers_agree_with_their_status() -> None:
    for code, entry in REGISTER.items():
        assert code == entry.error_code
        assert entry.status in (code, code // 100)
        assert entry.meaning
        promises_nothing_appended = entry.status in (429, 503, 507)
        assert entry.retriable is (promises_nothing_appended or code == 50003)


def test_only_a_refusal_promises_that_nothing_was_appended() -> None:
    """What failed after the write has a number of its own, outside 429, 503 and 507."""
    entry = entry_of(errors.AppendOutcomeUnknown("x"))
    assert (entry.error_code, entry.status, entry.kafka_error) == (
        50003,
        500,
        errors.AppendOutcomeUnknown.kafka_error,
    )
    assert entry_of(errors.LogStartNotDurable("x")) is entry
    refusals = (errors.LogDirOffline, errors.DiskFull, errors.DescriptorsShort, errors.Unavailable)
    assert not issubclass(errors.AppendOutcomeUnknown, refusals)
    assert "429, 503 and 507 mean that nothing was appended" in errors_page()


def test_the_page_is_what_the_code_says() -> None:
    """docs/reference/errors.md is generated: ``make docs``."""
    assert (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8") == errors_page()
