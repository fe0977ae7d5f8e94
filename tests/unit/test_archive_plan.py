"""Goal: the plan of an archive asks a daemon, or a store, for all partitions together.
Method: a daemon of 16 topics with 1,000 partitions each, as its client sees it; requests counted.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import pytest

from kafkalog.client import NotFound, Unavailable
from kafkalog.client.fetch import OffsetAt
from kafkalog.jobs.archive.archive import ArchiveOptions, Run
from kafkalog.jobs.archive.archive_table import Position
from kafkalog.spark.logs import daemon
from kafkalog.spark.logs.daemon import DaemonLogs
from kafkalog.spark.logs.values import Access
from tests.sim.sim_clock import SimClock

TOPICS, PARTITIONS, RECORDS = 16, 1_000, 10


@dataclass
class CountedClient:
    """A daemon whose partitions have ten records, one a second; each method is a request."""

    requests: Counter[str] = field(default_factory=Counter)
    archived: int = 0
    broken: str = ""

    def describe_topics(self) -> list[dict[str, Any]]:
        self.requests["topics"] += 2  # the cluster, then its topics
        return [
            {"topic_name": f"t{each:02}", "topic_id": f"id{each}", "partitions_count": PARTITIONS}
            for each in range(TOPICS)
        ]

    def list_offsets(
        self, partitions: list[tuple[str, int]], at: str | int, *, isolation: str
    ) -> list[OffsetAt]:
        self.requests["offsets"] += 1
        assert isolation == "read_committed"
        offset = {"earliest": 0, "latest": RECORDS}.get(str(at))
        if offset is None:
            offset = int(at) // 1_000 if int(at) < 1_000 * RECORDS else -1
        return [
            OffsetAt(
                topic,
                number,
                offset,
                -1,
                -1,
                Unavailable("It is not served.") if f"{topic}-{number}" == self.broken else None,
            )
            for topic, number in partitions
        ]

    def archived_offsets(self, topic: str) -> list[dict[str, Any]]:
        self.requests["archived"] += 1
        return [
            {
                "partition": each,
                "archived_offset": self.archived,
                "log_start_offset": 0,
                "recovery_point": RECORDS,
                "lag_bytes": 700,
            }
            for each in range(PARTITIONS)
        ]

    def close(self) -> None:
        """Nothing."""


class EmptyTable:
    """Of a plan: its position."""

    def __init__(self, next_offset: int) -> None:
        offsets = {
            (f"t{topic:02}", each): next_offset
            for topic in range(TOPICS)
            for each in range(PARTITIONS)
        }
        self.position = Position(offsets if next_offset else {})


def planned(client: CountedClient, table: EmptyTable, **options: Any) -> Run:
    with (
        patch.object(daemon, "client_of", lambda *_: client),
        closing(DaemonLogs(Access(urls=("http://one",), read_committed=True))) as logs,
    ):
        table_of_plan: Any = table
        run = Run(logs, table_of_plan, ArchiveOptions(**options), SimClock())
        run.plan()
        run.check()
        return run


@pytest.mark.parametrize("archived", [0, 4])
def test_a_plan_of_16_000_partitions_takes_52_requests(archived: int) -> None:
    """4 for topics and ids, 2 for each thousand partitions, one a topic; none for pieces."""
    client = CountedClient(archived=archived)
    pieces = list(planned(client, EmptyTable(archived)).progress.pieces())
    assert len(pieces) == TOPICS * PARTITIONS
    assert {(each.range.from_offset, each.range.to_offset) for each in pieces} == {(archived, 10)}
    assert {each.size_bytes for each in pieces} == {700}
    assert client.requests == {"topics": 4, "offsets": 32, "archived": 16}


def test_without_new_records_there_is_no_piece() -> None:
    run = planned(CountedClient(archived=10), EmptyTable(RECORDS))
    assert run.planned_bytes == 0
    assert len(run.checked) == TOPICS * PARTITIONS


def test_a_plan_by_time_takes_a_request_more_for_a_thousand() -> None:
    client = CountedClient()
    run = planned(client, EmptyTable(0), before_ms=4_000)
    assert {each.range.to_offset for each in run.progress.pieces()} == {4}
    assert client.requests["offsets"] == 48


def test_one_partition_that_is_not_served_costs_some_requests_and_no_other_one() -> None:
    """It is found by halves."""
    client = CountedClient(broken="t03-777")
    run = planned(client, EmptyTable(0))
    assert list(run.progress.faults) == [("t03", 777)]
    assert len(list(run.progress.pieces())) == TOPICS * PARTITIONS - 1
    assert client.requests["offsets"] < 150


def test_a_topic_that_is_deleted_meanwhile_is_left_out() -> None:
    class Deleting(CountedClient):
        """Its first topic goes after it was listed."""

        def list_offsets(self, partitions: Any, at: Any, *, isolation: str) -> list[OffsetAt]:
            found = super().list_offsets(partitions, at, isolation=isolation)
            gone = NotFound("There is no topic t00.", status=404)
            return [replace(each, error=gone) if each.topic == "t00" else each for each in found]

    run = planned(Deleting(), EmptyTable(0))
    assert run.progress.faults == {}
    assert {each.range.topic for each in run.progress.pieces()} == {
        f"t{each:02}" for each in range(1, TOPICS)
    }
