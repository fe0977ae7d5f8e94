"""Goal: a topic never holds more than its quota, and takes appends again when it holds less.
Method: a whole manager on the twins; the bytes of the topic's .log files after each append.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.catalog import PartitionTable
from kafkalog.broker.directory.commands import AppendCommand
from kafkalog.broker.values import Acks, ConfigChange
from kafkalog.errors import InvalidTopicConfig, LargerThanQuota, QuotaExceeded
from kafkalog.log.log_config import LogConfig
from tests.sim.sim_manager import SimManager, batch_of, records_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafkalog.broker.directory.commands import Command

SMALL = LogConfig(segment_index_bytes=96, internal_segment_bytes=1_000)
VALUE = "v" * 132
BATCH_BYTES = len(batch_of(VALUE))
QUOTA = 10 * BATCH_BYTES + BATCH_BYTES // 2


def started(partitions: int = 1, quota: int = QUOTA) -> SimManager:
    sim = SimManager(topic_defaults=SMALL).start()
    sim.operations.topics.create("t", partitions, {"quota.bytes": str(quota)})
    return sim


def alter(sim: SimManager, **changes: str | None) -> None:
    given = [ConfigChange(key.replace("_", "."), text) for key, text in changes.items()]
    sim.operations.topics.alter_configs("t", given)


def append(sim: SimManager, value: str = VALUE, partition: int = 0, topic: str = "t") -> Command:
    return sim.produce(topic, batch_of(value), Acks.LEADER, partition)


def held(sim: SimManager) -> int:
    return sim.manager.table.size_bytes_of("t")


def fill(sim: SimManager, partitions: int = 1) -> int:
    """Append in turn until each partition refuses; how many were taken."""
    count, refused = 0, set[int]()
    while len(refused) < partitions:
        for partition in range(partitions):
            command = append(sim, partition=partition)
            assert held(sim) <= QUOTA
            if command.error is None:
                count += 1
            else:
                assert isinstance(command.error, QuotaExceeded)
                refused.add(partition)
    return count


@pytest.mark.parametrize("partitions", [1, 5])
def test_the_quota_is_the_topics(partitions: int) -> None:
    """M16: over all partitions and both directories; other topics, smaller appends go on."""
    sim = started(partitions)
    sim.operations.topics.create("other", 1)
    assert fill(sim, partitions) == 10
    assert append(sim, topic="other").error is None
    assert append(sim, "v").error is None
    error = append(sim).error
    assert error is not None
    assert error.details == {"topic": "t", "quota_bytes": QUOTA, "used_bytes": held(sim)}


def test_a_refused_append_leaves_nothing() -> None:
    """M15 M16: no offset is used up, whoever sent it."""
    sim = started()
    assert fill(sim) == 10
    end = sim.operations.partition_log("t", 0).log_end_offset
    size = held(sim)
    append(sim)
    assert (sim.operations.partition_log("t", 0).log_end_offset, held(sim)) == (end, size)


def told_of_quotas(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Events about quotas; a log that fills up rolls, too."""
    return [line["event"] for line in lines if line["event"].startswith("topic_")]


def test_it_resumes_when_retention_made_room() -> None:
    """M15 M16: by itself, told once each way and counted."""
    sim = started()
    with capture_logs() as lines:
        fill(sim)
        for _ in range(5):
            append(sim)
            sim.clock.advance_ms(300)
    assert told_of_quotas(lines) == ["topic_quota_reached"]
    refusals = sim.metrics.registry.get_sample_value(
        "kafkalog_quota_refusals_total", {"topic": "t"}
    )
    assert refusals == 6
    alter(sim, retention_bytes="1000")
    assert sim.manager.retention.run_once() > 0
    with capture_logs() as lines:
        assert append(sim).error is None
    assert told_of_quotas(lines) == ["topic_has_room_again"]
    assert held(sim) <= QUOTA


def test_what_is_larger_than_the_quota_never_fits() -> None:
    """M16: refused for good, not until something goes; told once; smaller ones are taken. Nobody
    sends again what an empty topic would not take, or waits for retention.
    """
    sim = started(quota=BATCH_BYTES - 1)
    with capture_logs() as lines:
        for _ in range(2):
            error = append(sim).error
            assert isinstance(error, LargerThanQuota)
            assert error.details["used_bytes"] == 0
    assert [line["event"] for line in lines] == ["append_larger_than_quota"]
    assert append(sim, "v").error is None


def test_deleted_records_make_no_room_before_their_files_go() -> None:
    """M16: what counts is the disk: whole segments, when a retention check takes them."""
    sim = started()
    fill(sim)
    assert sim.delete_records("t", 9).error is None
    sim.clock.advance_ms(300)
    assert isinstance(append(sim).error, QuotaExceeded)
    sim.manager.retention.run_once()
    sim.clock.advance_ms(300)
    assert append(sim).error is None


def test_a_changed_quota_counts_at_once() -> None:
    """M13: raised, lowered below what is there, taken away; after a restart too."""
    sim = started()
    fill(sim)
    alter(sim, quota_bytes=str(QUOTA + BATCH_BYTES))
    assert append(sim).error is None
    alter(sim, quota_bytes="1")
    assert isinstance(append(sim, "v").error, QuotaExceeded)
    again = SimManager(sim.stop(), seed=1, topic_defaults=SMALL).start()
    assert isinstance(append(again, "v").error, QuotaExceeded)
    alter(again, quota_bytes=None)
    assert append(again).error is None
    alter(again, quota_bytes="0")
    assert isinstance(append(again, "v").error, QuotaExceeded)


def test_appends_that_share_a_write_are_judged_one_by_one() -> None:
    """M16: of a run that does not fit as a whole, the ones that do are taken."""
    sim = started()
    append(sim)
    log = sim.operations.partition_log("t", 0)
    done: list[Command] = []
    for _ in range(15):
        records = records_of(batch_of(VALUE), log)
        sim.manager.unit_of(log).writer.submit(
            AppendCommand(log, records, Acks.LEADER, None, done.append)
        )
    sim.threads.run_until(lambda: len(done) == 15)
    taken = [command for command in done if command.error is None]
    assert len(taken) == 9
    assert log.log_end_offset == 10
    assert all(isinstance(each.error, QuotaExceeded) for each in done if each.error is not None)


def test_a_topic_made_again_starts_from_nothing() -> None:
    """M14: the old one's bytes are not the new one's."""
    sim = started()
    fill(sim)
    sim.operations.topics.delete("t")
    sim.operations.topics.create("t", 1, {"quota.bytes": str(QUOTA)})
    assert fill(sim) == 10


def test_appends_far_from_the_quota_do_not_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """M16: one look at the segments, whatever their number."""
    sim = started(quota=1 << 30)
    sums: list[str] = []

    def counted(topic: str) -> int:
        sums.append(topic)
        return PartitionTable.size_bytes_of(sim.manager.table, topic)

    monkeypatch.setattr(sim.manager.table, "size_bytes_of", counted)
    for _ in range(200):
        assert append(sim).error is None
    assert sums == ["t"]


def test_it_is_described_and_checked_like_any_config() -> None:
    """M13: default without a source of its own, the topic's with it; words and -2 are refused."""
    sim = started()
    sim.operations.topics.create("plain", 1)
    found = {
        topic: next(
            entry
            for entry in sim.operations.topics.describe(topic).configs
            if entry.name == "quota.bytes"
        )
        for topic in ("t", "plain")
    }
    assert (found["plain"].value, found["plain"].source) == ("-1", "DEFAULT_CONFIG")
    assert (found["t"].value, found["t"].source) == (str(QUOTA), "DYNAMIC_TOPIC_CONFIG")
    for text in ("-2", "1e9", "much", ""):
        with pytest.raises(InvalidTopicConfig, match=r"quota\.bytes"):
            alter(sim, quota_bytes=text)
    assert sim.operations.topics.describe("t").overrides == {"quota.bytes": str(QUOTA)}
