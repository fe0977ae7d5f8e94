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


# What bad input of each kind gets, and where that is asserted.
BAD_INPUT = {
    "broken framing, no host or two": (40000, "test_http_framing.py"),
    "HTTP versions other than 1.0 and 1.1": (505, "test_http_framing.py"),
    "TLS bytes on a plain port": (40000, "test_http_framing.py"),
    "a request line too long": (414, "test_http_framing.py"),
    "headers too large or too many": (431, "test_http_framing.py"),
    "a header or body too slow": (408, "test_http_slow_clients.py"),
    "a body too large, inflated too": (41302, "test_http_bodies.py"),
    "a batch above max.message.bytes": (41301, "test_http_batches.py"),
    "an unknown Content-Type": (415, "test_http_produce.py"),
    "an unknown Content-Encoding": (41502, "test_http_produce.py"),
    "a gzip body that does not inflate": (40006, "test_http_produce.py"),
    "an Accept that is not offered": (406, "test_http_topics.py"),
    "Expect other than 100-continue": (417, "test_http_framing.py"),
    "an unknown path": (404, "test_http_topics.py"),
    "a method that a path does not take": (405, "test_http_topics.py"),
    "no JSON, no UTF-8, too deep, a member twice": (400, "test_http_bodies.py"),
    "JSON of the wrong shape": (422, "test_http_produce.py"),
    "bad base64": (400, "test_http_produce.py"),
    "no records": (422, "test_http_produce.py"),
    "too many records": (42214, "test_http_produce.py"),
    "an illegal topic name": (40002, "test_http_hostile_names.py"),
    "an unknown topic": (40401, "test_http_topics.py"),
    "an unknown partition": (40402, "test_http_topics.py"),
    "a topic that exists": (40904, "test_http_topics.py"),
    "a partition that is no number": (404, "test_http_topics.py"),
    "an offset that is no number": (40005, "test_http_fetch.py"),
    "a fetch below the start": (41001, "test_http_fetch.py"),
    "a fetch above the end": (41601, "test_http_fetch.py"),
    "delete-records above the high watermark": (41602, "test_http_delete_records.py"),
    "an archived offset above the high watermark": (41602, "test_http_archived_offsets.py"),
    "a wrong file of delete-records": (40002, "test_http_delete_records.py"),
    "delete-records of a compacted topic": (40907, "test_http_delete_records.py"),
    "a batch with a wrong CRC": (42209, "test_http_batches.py"),
    "a malformed batch": (42210, "test_http_batches.py"),
    "an unknown codec": (42213, "test_http_batches.py"),
    "a batch that inflates beyond the limit": (41303, "test_http_bodies.py"),
    "no key on a compacted topic": (42212, "test_http_batches.py"),
    "a timestamp outside the window": (42211, "test_http_batches.py"),
    "a gap in the sequence": (40905, "test_http_batches.py"),
    "an older epoch": (40906, "test_http_batches.py"),
    "a config out of range": (40002, "test_http_configs.py"),
    "no or wrong credentials": (40101, "test_http_access.py"),
    "no right": (40301, "test_http_access.py"),
    "a rate used up": (42901, "test_http_rates.py"),
    "a partition in an offline directory": (50303, "test_disk_faults.py"),
    "starting, stopping": (50304, "test_daemon_start.py"),
    "descriptors short": (50302, "test_disk_faults.py"),
    "a full disk": (50701, "test_disk_faults.py"),
    "a stored batch that is corrupt": (50010, "test_http_fetch.py"),
    "a defect": (50000, "test_http_defects.py"),
}


def test_bad_input_has_its_stated_answer() -> None:
    """Each kind where its number is asserted of a daemon's answer."""
    for kind, (number, module) in BAD_INPUT.items():
        assert number in numbers_asserted_in(Path(__file__).parent / module), kind


def test_every_error_of_the_inner_rings_has_a_number() -> None:
    """By its own class or an ancestor's; only the root is a defect, and a start answers nobody."""
    pending = [errors.KafkalogError]
    while pending:
        kind = pending.pop()
        if kind.__module__.startswith("kafkalog.spark."):
            continue  # of jobs, which no daemon runs: loaded by other tests of the same process
        pending += kind.__subclasses__()
        error = (
            kind("x", file="f", position=0) if issubclass(kind, errors.CorruptData) else kind("x")
        )
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
    """docs/errors.md is generated: ``make docs``."""
    assert (ROOT / "docs/errors.md").read_text(encoding="utf-8") == errors_page()
