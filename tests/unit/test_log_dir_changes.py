"""Goal: directories are cordoned, and moves slowed down, while the daemon serves.
Method: a whole manager on the simulated disk and clock; dynamic broker configs, restarts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from kafkalog.broker.broker_config import BrokerConfig
from kafkalog.broker.values import ConfigChange, MoveState
from kafkalog.errors import InvalidReplicaAssignment, InvalidRequest
from tests.sim.sim_manager import DIRS, SimManager, batch_of

if TYPE_CHECKING:
    from collections.abc import Sequence

A, B = DIRS
CORDONED = "cordoned.log.dirs"
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
HOUR_MS = 3_600_000


def alter(sim: SimManager, key: str, value: str | None) -> None:
    sim.operations.alter_broker_configs([ConfigChange(key, value)])


def counts(sim: SimManager) -> list[int]:
    """Partitions of each directory."""
    return [len(sim.manager.table.logs_in(path)) for path in DIRS]


def cordons(sim: SimManager) -> list[bool]:
    return [each.is_cordoned for each in sim.operations.log_dirs.describe()]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (B, [True, False]),
        (f"{A}/", [False, True]),
        ("*", [True, False]),  # as in Kafka the first one then takes everything
        ("", [False, False]),
    ],
)
def test_a_cordon_counts_at_once(value: str, expected: Sequence[bool]) -> None:
    """M14: KIP-1066, no restart. New partitions go elsewhere from the answer on, and what is there
    is served.
    """
    sim = SimManager().start()
    sim.operations.topics.create("old", 2)
    alter(sim, CORDONED, value)
    sim.operations.topics.create("new", 4)
    measured = [
        sim.metrics.registry.get_sample_value("kafkalog_log_dir_cordoned", {"log_dir": path})
        for path in DIRS
    ]
    assert measured == [float(each) for each in cordons(sim)]
    took = [count > 1 for count in counts(sim)]
    assert took == ([True, True] if value == "" else expected)
    for topic, number in (("old", 2), ("new", 4)):
        for partition in range(number):
            assert sim.produce(topic, batch_of("v"), partition=partition).error is None


def test_a_cordon_survives_a_restart_and_is_taken_back() -> None:
    """M14: it goes over the file's value. A dynamic cordon is as durable as any config, and told
    when it changes.
    """
    config = BrokerConfig(log_dirs=DIRS, cordoned_log_dirs=(A,))
    sim = SimManager(config=config).start()
    assert cordons(sim) == [True, False]
    with capture_logs() as lines:
        alter(sim, CORDONED, B)
    assert [(line["event"], line["log_dir"]) for line in lines] == [
        ("log_dir_uncordoned", A),
        ("log_dir_cordoned", B),
    ]
    assert cordons(sim) == [False, True]
    sim.operations.topics.create("t", 1)
    with pytest.raises(InvalidReplicaAssignment):
        sim.operations.log_dirs.move("t", 0, B)
    again = SimManager(sim.stop(), config=config).start()
    assert cordons(again) == [False, True]
    alter(again, CORDONED, None)
    assert cordons(again) == [True, False]


@pytest.mark.parametrize("value", ["/elsewhere", f"*,{A}", f"{A},/elsewhere"])
def test_only_log_directories_are_cordoned(value: str) -> None:
    """M14: refused as the file's value is. A mistyped path is no cordon that nobody notices."""
    sim = SimManager().start()
    with pytest.raises(InvalidRequest, match="must name directories"):
        alter(sim, CORDONED, value)
    assert cordons(sim) == [False, False]
    assert CORDONED not in sim.manager.registry.state.broker_configs


def test_a_cordoned_directory_may_leave_the_configuration() -> None:
    """M14: one takes a disk out after one has emptied it. A stored cordon of a directory that is
    gone does not stop the start, nor other changes.
    """
    sim = SimManager().start()
    alter(sim, CORDONED, B)
    again = SimManager(sim.stop(), config=BrokerConfig(log_dirs=(A,))).start()
    alter(again, "log.retention.ms", "5000")
    assert [each.is_cordoned for each in again.operations.log_dirs.describe()] == [False]
    with pytest.raises(InvalidRequest, match="must name directories"):
        alter(again, CORDONED, f"{A},{B}")


def test_another_rate_ends_the_pause_of_a_move() -> None:
    """M14: as Kafka's dynamic replication quota. A move that was throttled to a crawl goes on when
    the limit is raised.
    """
    sim = SimManager().start()
    sim.operations.topics.create("t", 1)
    for _ in range(50):
        assert sim.produce("t", batch_of("v" * 100)).error is None
    alter(sim, RATE, "1")
    sim.operations.log_dirs.move("t", 0, B)
    sim.clock.advance_ms(HOUR_MS)
    assert sim.operations.log_dirs.moves()[0].state is MoveState.COPYING
    alter(sim, RATE, None)
    sim.threads.run_until(lambda: sim.operations.log_dirs.moves()[0].state is MoveState.DONE)
    with pytest.raises(InvalidRequest, match=RATE):
        alter(sim, RATE, "0")
