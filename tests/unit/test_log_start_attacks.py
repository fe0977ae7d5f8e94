"""Goal: no rotten line of the log starts serves deleted records, or deletes others, without a word.
Method: one line of Kafka's file changed between two lives of a simulated manager; tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.directory.log_dir import LOG_START_OFFSETS, PROOFS
from kafkalog.broker.directory.repair import LogDirRepair
from kafkalog.errors import CleaningConflict, InvalidRequest
from kafkalog.format.disk.checkpoints import encode_leader_epochs
from kafkalog.format.disk.log_proofs import decode_proofs
from kafkalog.log.log_config import LogConfig
from kafkalog.log.retention import execute
from kafkalog.log.retention.plan import Keeper, keeper_of
from tests.sim.sim_clock import SimClock
from tests.sim.sim_manager import SimManager, batch_of
from tests.sim.sim_random import SimRandom
from tests.sim.sim_threads import SimThreads

if TYPE_CHECKING:
    from kafkalog.broker.directory.log_dir import LogDir
    from kafkalog.format.topic_names import TopicPartition
    from kafkalog.log.unified_log import UnifiedLog
    from tests.sim.sim_filesystem import SimFilesystem

ONE = BrokerConfig(log_dirs=("/data/a",))
# Batches of 69 bytes, sixteen a segment: bases 0, 16 and 32.
SMALL = LogConfig(segment_index_bytes=96, internal_segment_bytes=16 * 69, retention_ms=-1)
PATH = f"/data/a/{LOG_START_OFFSETS}"
COUNTER = "kafkalog_log_start_contradictions_total"


def life(disk: SimFilesystem | None = None) -> tuple[SimManager, list[dict[str, Any]]]:
    """A daemon, and what it said of log starts at its start."""
    with capture_logs() as captured:
        sim = SimManager(disk, config=ONE, topic_defaults=SMALL).start()
    return sim, [dict(each) for each in captured if each["event"] == "log_starts_contradict"]


def deleted_below_nine(*, clean: bool) -> SimFilesystem:
    """Topics t and v with 40 synced records; of t those below 9 were deleted."""
    sim, _ = life()
    for topic in "tv":
        sim.operations.topics.create(topic, 1)
        for _ in range(40):
            assert sim.produce(topic, batch_of("v")).error is None
    bases = [each.base_offset for each in sim.manager.logs.log_of("t", 0).segments]
    assert bases == [0, 16, 32]
    assert sim.delete_records("t", 9).error is None
    return sim.stop() if clean else sim.kill()


def write(disk: SimFilesystem, *lines: str) -> None:
    disk.write_file_atomically(PATH, f"0\n{len(lines)}\n".encode() + "\n".join(lines).encode())


def start_of(sim: SimManager, topic: str = "t") -> int:
    return sim.manager.logs.log_of(topic, 0).log_start_offset


def counted(sim: SimManager) -> float:
    return sim.metrics.registry.get_sample_value(COUNTER, {"log_dir": "/data/a"}) or 0.0


def retain(sim: SimManager, topic: str = "t") -> list[int]:
    """Let retention take all it may; the bases that are left."""
    sim.manager.topics.alter_configs(topic, {"retention.bytes": "0"})
    sim.manager.retention.run_once()
    return [each.base_offset for each in sim.manager.logs.log_of(topic, 0).segments]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lines", [["u 0 9"], ["t 1 9"], ["t 0 1"], ["t 0 9x"], []])
def test_deleted_records_stay_deleted(lines: list[str], clean: bool) -> None:
    disk = deleted_below_nine(clean=clean)
    write(disk, *lines)
    sim, told = life(disk)
    assert start_of(sim) == 9
    assert [(each["log_level"], each["partition"]) for each in told] == [("error", "t-0")]
    assert counted(sim) == 1
    sim, told = life(sim.kill())
    assert (start_of(sim), told, counted(sim)) == (9, [], 0)
    assert retain(sim) == [40], "it is what was acknowledged, so it holds nothing up"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lines", [["t 0 25"], ["t 0 16"], ["t 0 9", "v 0 25"]])
def test_a_raised_log_start_deletes_nothing(lines: list[str], clean: bool) -> None:
    """A line raised, to the base of a segment too, or another's that became this one's."""
    topic, offset = lines[-1][0], int(lines[-1][4:])
    disk = deleted_below_nine(clean=clean)
    write(disk, *lines)
    for stop in (SimManager.kill, SimManager.stop, SimManager.kill):
        sim, told = life(disk)
        assert start_of(sim, topic) == offset
        assert [(each["log_level"], each["partition"][0]) for each in told] == [("error", topic)]
        assert counted(sim) == 1
        assert retain(sim, topic) == [0, 16, 32]
        disk = stop(sim)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("topic", ["t", "v"])
def test_a_log_start_above_the_end_takes_nothing(topic: str, clean: bool) -> None:
    disk = deleted_below_nine(clean=clean)
    write(disk, f"{topic} 0 999")
    sim, told = life(disk)
    assert len(told) == 1 + (topic == "v"), "the line of t is gone then"
    log = sim.manager.logs.log_of(topic, 0)
    assert (log.log_start_offset, log.log_end_offset) == ({"t": 9, "v": 0}[topic], 40)
    assert [each.base_offset for each in log.segments] == [0, 16, 32]


def disputed(**overrides: str) -> SimManager:
    """Topic t begins at 25 by Kafka's file and at 9 by ours, in a life of today."""
    disk = deleted_below_nine(clean=True)
    write(disk, "t 0 25")
    sim, _ = life(disk)
    if overrides:
        configs = {key.replace("_", "."): value for key, value in overrides.items()}
        sim.manager.topics.alter_configs("t", configs)
    return sim


@pytest.mark.parametrize("offset", [25, 30, -1])
def test_a_deletion_up_to_there_settles_it(offset: int) -> None:
    sim = disputed()
    assert sim.delete_records("t", 24).result == 25
    assert sim.manager.logs.log_of("t", 0).disputed_start_offset == 9
    assert sim.delete_records("t", offset).error is None
    assert sim.manager.logs.log_of("t", 0).disputed_start_offset is None
    start = {-1: 40}.get(offset, offset)
    sim, told = life(sim.kill())
    assert (start_of(sim), told) == (start, [])
    assert retain(sim) == [40]


def test_the_doctor_settles_it() -> None:
    """The checked file counts: the records between the two are there again."""
    sim = disputed()
    disk, clock = sim.stop(), SimClock()
    for count in (1, 0):
        repair = LogDirRepair(("/data/a",), 1, None, (disk, clock, SimRandom(9), SimThreads(clock)))
        repair.open()
        steps = [step for step, _ in repair.run(dry_run=False)]
        repair.close()
        assert len(steps) == count
        for step in steps:
            assert step.file == PATH
            assert step.message.startswith("t-0 starts at 9 again")
    sim, told = life(disk)
    assert (start_of(sim), told) == (9, [])
    assert retain(sim) == [40]


def test_a_disputed_log_is_not_compacted() -> None:
    sim = disputed(cleanup_policy="compact,delete", min_cleanable_dirty_ratio="0")
    log, states = sim.manager.logs.log_of("t", 0), sim.manager.cleaning.states
    standing = states.inspect(log, 0)
    assert standing.to_clean is not None
    assert not standing.to_clean.is_eligible
    with pytest.raises(CleaningConflict, match="disputed where it starts: at 25 or at 9"):
        states.acquire_log(log, 0)
    assert sim.delete_records("t", 25).error is None
    assert states.inspect(log, 0).to_clean.is_eligible  # type: ignore[union-attr]


def test_a_disputed_log_is_counted_and_explained() -> None:
    sim = disputed()
    gauge = "kafkalog_log_starts_disputed"
    assert sim.metrics.registry.get_sample_value(gauge, {"log_dir": "/data/a"}) == 1
    sim.manager.topics.alter_configs("t", {"retention.bytes": "0"})
    facts = execute.facts_of(sim.manager.logs.log_of("t", 0))
    policy = execute.policy_of(sim.manager.logs.log_of("t", 0).config)
    assert keeper_of(facts, policy, 0) is Keeper.DISPUTED_START


def test_a_disputed_log_is_not_moved() -> None:
    """The copy would begin at the higher start, and what lies below would be gone."""
    disk = deleted_below_nine(clean=True)
    write(disk, "t 0 25")
    two = BrokerConfig(log_dirs=("/data/a", "/data/b"))
    sim = SimManager(disk, config=two, topic_defaults=SMALL).start()
    with pytest.raises(InvalidRequest, match="where it starts"):
        sim.operations.log_dirs.move("t", 0, "/data/b")


def test_a_log_start_that_kafka_moved_counts() -> None:
    """It cuts the leader epochs at the new start; and files that went need no line."""
    disk = deleted_below_nine(clean=True)
    write(disk, "t 0 25")
    epochs = encode_leader_epochs([(1, 25), (2, 30)])
    disk.write_file_atomically("/data/a/t-0/leader-epoch-checkpoint", epochs)
    sim, told = life(disk)
    assert (start_of(sim), told) == (25, [])
    assert retain(sim) == [40]
    sim, told = life(sim.kill())
    assert (start_of(sim), told) == (40, [])


@pytest.mark.parametrize("file", [None, b"kafkalog.checkpoint 1\ndirectory \ncrc32c 00000000\n"])
def test_without_the_checked_file_nothing_is_disputed(file: bytes | None) -> None:
    """Of an upgrade, or damaged: a kill may have come before the epochs of the deletion went."""
    disk = deleted_below_nine(clean=False)
    disk.unlink(f"/data/a/{PROOFS}")
    if file is not None:
        disk.write_file_atomically(f"/data/a/{PROOFS}", file)
    sim, told = life(disk)
    assert (start_of(sim), told) == (9, [])
    assert retain(sim) == [40]


def test_a_start_that_moves_while_files_are_written_is_no_dispute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The writer deletes while a task has collected one file and not the other; then a kill."""
    sim, _ = life()
    sim.operations.topics.create("t", 1)
    for _ in range(40):
        assert sim.produce("t", batch_of("v")).error is None
    log, checkpoints = sim.manager.logs.log_of("t", 0), sim.manager.checkpoints
    encode, collect = checkpoints._encoded_proofs, checkpoints._collect

    def delete() -> None:
        if log.log_start_offset == 0:
            log.increment_log_start_offset(9, "client delete records request")

    def encoded(log_dir: LogDir, *, is_stopped: bool) -> bytes:
        data = encode(log_dir, is_stopped=is_stopped)
        delete()
        return data

    def collected(log_dir: LogDir, name: str) -> dict[TopicPartition, int]:
        offsets = collect(log_dir, name)
        delete()
        return offsets

    monkeypatch.setattr(checkpoints, "_encoded_proofs", encoded)
    monkeypatch.setattr(checkpoints, "_collect", collected)
    checkpoints.write_start_offsets(sim.manager.logs.online_units[0].log_dir)
    sim, _ = life(sim.kill())
    assert sim.manager.logs.log_of("t", 0).disputed_start_offset is None


def test_a_dispute_that_ends_while_the_file_is_written_leaves_a_sound_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The writer settles it between two looks of a task."""
    sim = disputed()
    log, seen = sim.manager.logs.log_of("t", 0), list[None]()

    def look(_: UnifiedLog) -> int | None:
        seen.append(None)
        return 9 if len(seen) == 1 else None

    with monkeypatch.context() as patch:
        patch.setattr(type(log), "disputed_start_offset", property(look), raising=False)
        sim.manager.checkpoints.write_proofs(sim.manager.logs.online_units[0].log_dir)
    _, entries = decode_proofs(sim.disk.read_file(f"/data/a/{PROOFS}"))
    assert {entry.log_start_offset for entry in entries.values()} <= {0, 9, 25}
