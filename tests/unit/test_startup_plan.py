"""Goal: every directory found at the start gets the one decision that design 4.6 names for it.
Method: the pure planner on hand-made findings; one whole start after a topic died while away.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from kafkalog.broker.startup.plan import FoundPartition, StartupPlan, plan_startup, suspects
from kafkalog.broker.topics.registry import RegisteredTopic, RegistryState
from kafkalog.format.topic_names import DirectoryState, TopicPartition
from tests.sim.sim_manager import DIRS, SimManager, batch_of

ALIVE, DEAD, OTHER = UUID(int=1001), UUID(int=1002), UUID(int=1003)


def found(
    topic: str,
    partition: int = 0,
    topic_id: UUID | None = None,
    state: DirectoryState = DirectoryState.LIVE,
) -> FoundPartition:
    name = f"{topic}-{partition}{state.value}"
    return FoundPartition("/a", name, TopicPartition(topic, partition), state, topic_id)


def registry() -> RegistryState:
    state = RegistryState().with_topics(
        [RegisteredTopic(ALIVE, "t", 2), RegisteredTopic(DEAD, "gone", 1)]
    )
    return state.without_topic("gone")


def test_each_kind_of_directory() -> None:
    """M14: known id or name: load; dead id: delete; unknown or contradicting: stray."""
    load = [found("t", 0, ALIVE), found("t", 1)]
    delete = [found("gone", 0, DEAD), found("t", 0, DEAD)]
    stray = [found("t", 2, ALIVE), found("t", 1, OTHER), found("new", 0, OTHER), found("gone")]
    remove = [found("x", state=DirectoryState.DELETE)]
    alone = [found("x", state=DirectoryState.STRAY), found("x", state=DirectoryState.FUTURE)]
    plan = plan_startup(
        registry(),
        [*load, *delete, *stray, *remove, *alone],
        adopt=False,
        new_topic_id=lambda: OTHER,
    )
    assert [each for each, _ in plan.load] == load
    assert (plan.delete, plan.stray) == (delete, stray)
    assert (plan.remove, plan.left_alone) == (remove, alone)
    assert plan.registry == registry()


def test_an_id_that_contradicts_the_registry() -> None:
    """M14: with records in it and no other home the partition is refused; else the old rules."""
    unknown = replace(found("t", 0, OTHER), has_records=True)
    twin = replace(found("t", 1, OTHER), has_records=True)
    dead = replace(found("t", 0, DEAD), has_records=True)
    beyond = replace(found("t", 2, OTHER), has_records=True)
    home = replace(found("t", 1, ALIVE), log_dir="/b")
    for adopt in (True, False):
        plan = plan_startup(
            registry(),
            [unknown, twin, dead, beyond, home, found("t", 0, OTHER)],
            adopt=adopt,
            new_topic_id=lambda: OTHER,
        )
        assert plan.contradicted == [(unknown, registry().topics["t"])]
        assert [each for each, _ in plan.load] == [home]
        assert plan.delete == [dead]
        assert plan.stray == [twin, beyond, found("t", 0, OTHER)]
        assert plan.adopted == []


def test_one_partition_half_made_in_two_directories() -> None:
    """M14: a creation failed in one and a crash ended it in the other, before either had an id."""
    here, there = found("t", 0), replace(found("t", 0), log_dir="/b")
    for unused, loads, deletes in (
        ({here.path, there.path}, [there], [here]),
        ({here.path}, [there], [here]),
        ({there.path}, [here], [there]),
        (set[str](), [here, there], []),  # refused afterwards: both may hold records
    ):
        assert suspects(registry(), [here, there]) == [here, there]
        plan = plan_startup(
            registry(), [here, there], unused, adopt=False, new_topic_id=lambda: OTHER
        )
        assert [each for each, _ in plan.load] == loads
        assert (plan.delete, plan.stray) == (deletes, [])


def test_adoption() -> None:
    """M14: ids are kept, holes are counted in, internal topics stay compacted."""
    plan = plan_startup(
        RegistryState(),
        [found("n", 3, OTHER), found("n", 0), found("__consumer_offsets", 49, ALIVE)],
        adopt=True,
        new_topic_id=lambda: DEAD,
    )
    topics = plan.registry.topics
    assert plan.registry.generation == 1
    assert (topics["n"].topic_id, topics["n"].partition_count) == (OTHER, 4)
    assert topics["__consumer_offsets"].partition_count == 50
    assert topics["__consumer_offsets"].overrides["cleanup.policy"] == "compact"
    assert topics["n"].overrides == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert len(plan.load) == 3
    assert plan.stray == []


def test_adopted_records_outlive_the_default_retention() -> None:
    """M09 M14: what a topic was told to keep did not come along, so nothing of it is deleted."""
    sim = SimManager().start()
    sim.operations.topics.create("t", 1)
    sim.produce("t", batch_of("old"))
    disk = sim.stop()
    for path in DIRS:
        disk.unlink(f"{path}/kafkalog.registry")
    again = SimManager(disk, seed=1).start()
    again.clock.step_wall_ms(30 * 86_400_000)
    assert again.manager.retention.run_once() == 0
    assert again.manager.retention.run_once() == 0
    assert again.operations.partition_log("t", 0).log_start_offset == 0
    assert again.operations.partition_log("t", 0).size_bytes > 0


def test_a_topic_that_died_while_its_directory_was_away() -> None:
    """M14 M15: the directory that comes back finishes the delete, the id is dead for good."""
    sim = SimManager().start()
    sim.operations.topics.create("t", 2)
    away = sim.operations.partition_log("t", 1).directory.rpartition("/")[0]
    sim.manager._units[away].log_dir.take_offline("pulled")
    sim.threads.run_until_idle()
    sim.operations.topics.delete("t")
    disk = sim.stop()
    assert disk.exists(f"{away}/t-1")
    again = SimManager(disk, seed=1).start()
    assert again.operations.topic_names() == []
    assert not disk.exists(f"{away}/t-1")
    again.clock.advance_ms(200_000)
    assert not [name for path in DIRS for name in disk.list_dir(path) if name.startswith("t-")]


X, Y = "0" * 31 + "1", "0" * 31 + "2"


def moved(state: DirectoryState, unique_id: str, topic_id: UUID | None = ALIVE) -> FoundPartition:
    """A directory of t-0 that a move, or a deletion, has named."""
    return replace(found("t", 0, topic_id, state), unique_id=unique_id)


def test_a_pair_of_one_move_tells_that_its_copy_is_complete() -> None:
    """Between its two renamings a move has left a -delete and a -future of one id."""
    doomed, future = moved(DirectoryState.DELETE, X), moved(DirectoryState.FUTURE, X)
    plan = plan_startup(registry(), [doomed, future], adopt=False, new_topic_id=lambda: OTHER)
    (move,) = plan.committed
    assert (move.future, move.doomed, move.topic.name) == (future, doomed, "t")
    assert (plan.remove, plan.orphans, plan.moving) == ([], [], [])

    other = moved(DirectoryState.DELETE, Y)
    plan = plan_startup(registry(), [other, future], adopt=False, new_topic_id=lambda: OTHER)
    assert (plan.committed, plan.orphans, plan.remove) == ([], [future, other], [])

    live = found("t", 0, ALIVE)
    plan = plan_startup(registry(), [live, doomed, future], adopt=False, new_topic_id=lambda: OTHER)
    assert (plan.committed, plan.moving, plan.remove) == ([], [future], [doomed])


def test_what_a_move_has_named_without_its_pair() -> None:
    """A copy is filled on where its partition is live; nothing goes where nothing is live."""
    future, doomed = moved(DirectoryState.FUTURE, X), moved(DirectoryState.DELETE, X)
    dead = moved(DirectoryState.FUTURE, Y, DEAD)
    foreign = moved(DirectoryState.FUTURE, Y, OTHER)
    nameless = moved(DirectoryState.FUTURE, "no-id")
    unnamed = moved(DirectoryState.DELETE, Y, None)
    second = moved(DirectoryState.FUTURE, Y)

    def plan_of(*parts: FoundPartition) -> StartupPlan:
        return plan_startup(registry(), parts, adopt=False, new_topic_id=lambda: OTHER)

    assert plan_of(future).orphans == [future]
    assert plan_of(doomed).orphans == [doomed]
    assert plan_of(dead).delete == [dead]
    assert plan_of(foreign).left_alone == [foreign]
    assert plan_of(nameless).left_alone == [nameless]
    assert plan_of(unnamed).remove == [unnamed]
    live = found("t", 0, ALIVE)
    assert plan_of(live, future, doomed, second).moving == [future]
    assert plan_of(live, future, doomed, second).delete == [second]
    assert plan_of(live, doomed).remove == [doomed]
