"""Goal: a directory of Kafka before 0.11 is served but for its old segments, and then all of it.

Method: every route over a partition of all formats, the command, and every route again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.integration.daemon import BINARY, Daemon
from tests.integration.http_world import append, batch_of, delete_records, read_batches, refused
from tests.integration.test_cli_over_http import done, run_plain
from tests.integration.test_damaged_log_dirs import PAGES, STREAMS, poll
from tests.old_formats import LINES, LOG_END, OLD_BASES, SEGMENTS
from tests.partition_world import records_of

if TYPE_CHECKING:
    from pathlib import Path

AT = "/v1/topics/orders/partitions/0"


def plant(directory: Path) -> None:
    directory.mkdir(parents=True)
    for base, data in SEGMENTS.items():
        (directory / f"{base:020d}.log").write_bytes(data)


def told(answer: Any, span: tuple[int, int]) -> None:
    """Which offsets, and what to do; not where the directory is."""
    body = refused(answer, 501, 50101)
    assert body["kafka_error"] == "UNSUPPORTED_FOR_MESSAGE_FORMAT"
    details = body["details"]
    assert isinstance(details, dict)
    assert (details["base_offset"], details["last_offset"]) == span
    assert "kafkalog segments convert" in str(body["message"])


def ask_every_route(daemon: Daemon, offset: int, span: tuple[int, int]) -> None:
    told(read_batches(daemon, "orders", offset), span)
    for path, accept in PAGES.values():
        at = path.format(topic="orders", offset=offset)
        told(daemon.request("GET", at, None, {"Accept": accept} if accept else {}), span)
    for accept in STREAMS.values():
        at = f"{AT}/records?offset={offset}&max_wait_ms=0"
        told(daemon.request("GET", at, None, {"Accept": accept}), span)
    told(poll(daemon, "orders", offset), span)


def offsets_from(daemon: Daemon, offset: int) -> list[int]:
    found: list[int] = []
    while True:
        answer = read_batches(daemon, "orders", offset)
        assert answer.status in (200, 204), answer.body
        if not answer.body:
            return found
        found += [record.offset for record in records_of(answer.body) if record.offset >= offset]
        offset = int(answer.headers["Kafka-Next-Offset"])


def test_old_segments_are_refused_by_every_route_until_they_are_converted(tmp_path: Path) -> None:
    directory = tmp_path / "dir0" / "orders-0"
    plant(directory)
    with Daemon(tmp_path) as daemon:
        assert daemon.request("GET", "/readyz").status == 200
        for offset, span in ((0, (0, 9)), (9, (0, 9)), (10, (10, 19)), (29, (20, 29))):
            ask_every_route(daemon, offset, span)
        assert offsets_from(daemon, 30) == [30, 31, 32]
        assert append(daemon, "orders", batch_of(b"new")).status == 200
        assert offsets_from(daemon, 33) == [33]
        page = daemon.request("GET", "/console/topics/orders/partitions/0/records?offset=0")
        assert page.status == 200
        assert b"message format v0 or v1" in page.body
        assert delete_records(daemon, ("orders", 0, 12))[0]["low_watermark"] == 12
        told(read_batches(daemon, "orders", 12), (10, 19))
    for base in OLD_BASES[1:]:
        assert (directory / f"{base:020d}.log").read_bytes() == SEGMENTS[base]
    printed = done(run_plain("segments", "convert", str(directory), "--execute"))
    assert printed.count(b"orders-0") >= 2
    with Daemon(tmp_path) as daemon:
        kept = [line[0] for line in LINES if line[0] >= 12]
        assert offsets_from(daemon, 12) == [*kept, LOG_END]
        answer = daemon.request(
            "GET", "/topics/orders/partitions/0/records?offset=12", None, {"Accept": BINARY}
        )
        found = [each["offset"] for each in answer.json]
        assert found == kept[: len(found)]
        assert len(found) > 2
