"""Goal: a principal's view of the operations lets through what its rules allow and nothing else.
Method: every public operation by its own declaration; a manager on a simulated disk.
"""

from __future__ import annotations

import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from kafkalog.broker.access_rules import ALL_ALLOWED, AccessRules, parse_access_rules
from kafkalog.broker.authorized import (
    authorized,
    need_of,
    open_to_all,
    operation_class,
    public_operations,
)
from kafkalog.broker.compaction.cleaning import CleaningOperations
from kafkalog.broker.directory.cordon import LogDirOperations
from kafkalog.broker.groups.consumers import ConsumerConfig, ConsumerGroups
from kafkalog.broker.groups.groups import GroupOperations
from kafkalog.broker.groups.offsets import GroupOffsets
from kafkalog.broker.operations import Acks, Operations
from kafkalog.broker.topics.topics import TopicOperations
from kafkalog.broker.transactions.producers import ProducerOperations
from kafkalog.errors import ClusterAccessDenied, TopicAccessDenied, UnknownTopic
from kafkalog.log.values import Isolation
from tests.sim.sim_manager import SimManager, batch_of, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator

CLASSES: tuple[type[object], ...] = (
    Operations,
    TopicOperations,
    CleaningOperations,
    GroupOperations,
    GroupOffsets,
    ConsumerGroups,
    LogDirOperations,
    ProducerOperations,
)


@contextmanager
def started() -> Iterator[SimManager]:
    sim = SimManager().start()
    try:
        yield sim
    finally:
        sim.stop()


def view(sim: SimManager, rules: str, principal: str = "p") -> Operations:
    return authorized(sim.operations, parse_access_rules(rules).rights_of(principal))


@pytest.mark.parametrize("kind", CLASSES)
def test_every_public_operation_says_what_it_needs(kind: type[object]) -> None:
    """A new operation without a rule fails here, before it fails at a view."""
    for name, method in public_operations(kind).items():
        need = need_of(method)
        assert need is not None, f"{kind.__name__}.{name} needs @requires, @lists or @open_to_all"
        if need.argument:
            assert inspect.isfunction(method)
            assert need.argument in inspect.signature(method).parameters, name
            assert need.sees in ("", *inspect.signature(method).parameters), name


def test_every_field_of_the_operations_can_be_seen_or_is_private() -> None:
    """Operations that are held as a field are checked too."""
    with started() as sim:
        seen = authorized(sim.operations, ALL_ALLOWED.rights_of("p"))
        for name in vars(sim.operations):
            if not name.startswith("_"):
                getattr(seen, name)
            else:
                with pytest.raises(AssertionError, match="no rule of access"):
                    getattr(seen, name)


def test_what_is_not_declared_is_refused() -> None:
    """Goal: what is forgotten is closed, not open.
    Method: a class with a method, a property and a field that say nothing.
    """

    @operation_class()
    class Forgetful:
        def __init__(self) -> None:
            self.field = 1

        def method(self) -> int:
            return 1

        @property
        def value(self) -> int:
            return 1

        @open_to_all
        def shown(self) -> int:
            return 1

    seen = authorized(Forgetful(), ALL_ALLOWED.rights_of("p"))
    assert seen.shown() == 1
    for name in ("method", "value", "field"):
        with pytest.raises(AssertionError, match=f"Forgetful.{name} has no rule"):
            getattr(seen, name)
    with pytest.raises(AttributeError):
        seen.missing  # type: ignore[attr-defined]  # noqa: B018 - the look-up is the test


def test_the_acts_of_a_reader_and_of_a_writer() -> None:
    """Each act needs its own right, and the right to read or write lets describe."""
    with started() as sim:
        sim.operations.topics.create("t")
        log = sim.operations.partition_log("t", 0)
        reader, writer = view(sim, "allow p read topic t"), view(sim, "allow p write topic t*")
        for seen in (reader, writer):
            assert seen.partition_log("t", 0) is log
            assert seen.partition_count(topic="t") == 1
            with pytest.raises(TopicAccessDenied, match="create topic new"):
                seen.topics.create("new")
            with pytest.raises(TopicAccessDenied, match="delete topic t"):
                seen.submit_delete_records("t", 0, 0, None)
            with pytest.raises(ClusterAccessDenied):
                seen.log_dirs.describe()
            with pytest.raises(ClusterAccessDenied):
                seen.alter_broker_configs([])
        with pytest.raises(TopicAccessDenied, match="write topic t"):
            reader.submit_produce(log, records_of(batch_of("x"), log), Acks.LEADER)
        with pytest.raises(TopicAccessDenied, match="read topic t"):
            writer.fetch("t", 0, 0, 100, Isolation.HIGH_WATERMARK, may_block=True)
        writer.submit_produce(log, records_of(batch_of("x"), log), Acks.LEADER)


def test_unknown_and_forbidden_topics_answer_alike() -> None:
    """Nobody finds out by asking which topics exist."""
    with started() as sim:
        sim.operations.topics.create("here")
        stranger, guest = view(sim, ""), view(sim, "allow p describe topic *")
        refusals = []
        for name in ("here", "gone"):
            with pytest.raises(TopicAccessDenied) as refused:
                stranger.partition_log(name, 0)
            refusals.append(refused.value.message.replace(name, "NAME"))
        assert refusals[0] == refusals[1]
        assert stranger.topic_names() == []
        assert guest.topic_names() == ["here"]
        with pytest.raises(UnknownTopic):
            guest.partition_log("gone", 0)


@pytest.mark.parametrize(
    ("right", "seen", "seen_later"),
    [
        ("describe topic mine-*", ["mine-1", "mine-2"], ["mine-1", "mine-2", "mine-3"]),
        ("read topic *", ["mine-1", "mine-2", "theirs"], ["mine-1", "mine-2", "mine-3", "theirs"]),
    ],
)
def test_a_pattern_matches_what_its_subscriber_may_describe(
    right: str, seen: list[str], seen_later: list[str]
) -> None:
    """An assignment tells no names that its owner could not ask for, now and later."""
    with started() as sim:
        for name in ("mine-1", "mine-2", "theirs"):
            sim.operations.topics.create(name)
        members = view(sim, f"allow p read group g\nallow p {right}").groups.members
        consumer = members.create("g", None, ConsumerConfig())
        members.subscribe(consumer, None, ".*")
        assert consumer.topics == seen
        sim.operations.topics.create("mine-3")
        assert members.find("g", consumer.name).topics == seen_later


def test_the_owner_of_everything_sees_what_is_there() -> None:
    """A view changes nothing for those who may do everything."""
    with started() as sim:
        seen = authorized(sim.operations, ALL_ALLOWED.rights_of("p"))
        seen.topics.create("t", 2)
        assert seen.cluster_id == sim.operations.cluster_id
        assert seen.node_id == sim.operations.node_id
        assert seen.topics.describe("t").partition_count == 2
        nothing = authorized(sim.operations, AccessRules().rights_of("p"))
        assert nothing.readiness() == sim.operations.readiness()
