"""Goal: the registry never forgets an acknowledged change and never mixes histories.
Method: random creates, deletes, lost directories and crashes between writes, against a plain dict.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from uuid import UUID

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkalog.broker.directory.log_dir import REGISTRY_FILE, LogDir
from kafkalog.broker.topics.registry import (
    RETIRED,
    ClockTrust,
    ProducerEpoch,
    RegisteredTopic,
    RegistryState,
    TopicRegistry,
    decode_registry,
    encode_registry,
)
from kafkalog.errors import InvalidConfig
from kafkalog.format.integers import FormatError
from tests.sim.sim_clock import SimClock
from tests.sim.sim_crash import CrashMode
from tests.sim.sim_faults import SimulatedCrash
from tests.sim.sim_filesystem import SimFilesystem
from tests.sim.sim_random import SimRandom
from tests.sim.sim_threads import SimThreads

PATHS = ("/a", "/b", "/c")
STOPS, MODES, SEEDS = st.integers(0, 12), st.sampled_from(list(CrashMode)), st.integers(0, 5)
IDS = st.uuids().filter(lambda value: value.int > 1000)
TOPICS = st.builds(
    RegisteredTopic,
    IDS,
    st.from_regex(r"[a-z0-9_.-]{1,8}", fullmatch=True).filter(lambda name: name not in (".", "..")),
    st.integers(10, 100),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2).map(MappingProxyType),
    st.dictionaries(st.integers(0, 9), st.integers(1, 2**63 - 1), max_size=2).map(MappingProxyType),
)
STATES = st.builds(
    lambda generation, topics, deleted, broker_configs, log_dirs, in_making, producers, rest: (
        RegistryState(
            generation,
            MappingProxyType({topic.name: topic for topic in topics}),
            deleted,
            MappingProxyType(broker_configs),
            MappingProxyType(log_dirs),
            MappingProxyType(in_making),
            *producers,
            *rest,
        )
    ),
    st.integers(0, 2**40),
    st.lists(TOPICS, max_size=4, unique_by=(lambda t: t.name, lambda t: t.topic_id)),
    st.frozensets(st.uuids(version=4), max_size=3),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
    st.dictionaries(st.uuids(version=4), st.text(max_size=5), max_size=2),
    st.dictionaries(st.uuids(version=4), st.integers(0, 100), max_size=2),
    st.tuples(
        st.just(0) | st.integers(0, 2**63 - 1),
        st.dictionaries(
            st.integers(0, 2**63 - 1),
            st.builds(ProducerEpoch, st.integers(0, RETIRED), st.integers(0, 2**50)),
            max_size=2,
        ).map(MappingProxyType),
        st.integers(0, 32_767),
    ),
    st.tuples(
        st.none() | st.text(max_size=5),
        st.none() | st.integers(-(2**31), 2**31 - 1),
        st.none() | st.text(max_size=5),
        st.none()
        | st.builds(
            ClockTrust,
            st.text(max_size=5),
            st.integers(0, 2**50),
            st.integers(0, 2**50),
            st.integers(0, 2**50),
            st.dictionaries(st.text(max_size=5), st.lists(st.integers(0, 100), max_size=2)),
        ),
    ),
)


@given(STATES)
def test_round_trip(state: RegistryState) -> None:
    assert decode_registry(encode_registry(state)) == state


@given(STATES, st.data())
def test_no_flipped_bit_is_believed(state: RegistryState, data: st.DataObject) -> None:
    """A changed byte is refused or changes nothing (white space)."""
    raw = bytearray(encode_registry(state))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        assert decode_registry(bytes(raw)) == state
    except FormatError:
        return


def test_newer_format_is_refused() -> None:
    with pytest.raises(FormatError, match="format 4"):
        decode_registry(b'{"format": 4, "later": true}')


@given(STATES)
def test_the_oldest_format_that_holds_a_state(state: RegistryState) -> None:
    """A version that would drop what it does not know does not read it; all others do."""
    has_producers = state.next_producer_id or state.producer_epochs or state.forgotten_epoch
    expected = 3 if has_producers else 2 if state.broker_configs else 1
    assert json.loads(encode_registry(state))["format"] == expected


@pytest.mark.parametrize(
    ("producers", "fault"),
    [
        ({"next_id": 1}, "malformed"),
        ({"next_id": -1, "epochs": {}, "forgotten_epoch": 0}, "malformed.* >= 0"),
        ({"next_id": 1, "epochs": {"x": [1, 1]}, "forgotten_epoch": 0}, "malformed"),
        (
            {"next_id": 1, "epochs": {"1": [32_769, 1]}, "forgotten_epoch": 0},
            "malformed.* <= 32768",
        ),
        ({"next_id": 1, "epochs": {"1": [1]}, "forgotten_epoch": 0}, "malformed"),
        ([], "malformed"),
    ],
)
def test_a_malformed_section_of_producers_is_refused(producers: object, fault: str) -> None:
    """A right checksum does not make it right."""
    body = json.loads(encode_registry(RegistryState(next_producer_id=1)))
    del body["checksum"]
    body["producers"] = producers
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    body["checksum"] = f"{zlib.crc32(canonical):08x}"
    with pytest.raises(FormatError, match=fault):
        decode_registry(json.dumps(body).encode())


def dirs_of(disk: SimFilesystem, paths: tuple[str, ...]) -> list[LogDir]:
    clock = SimClock()
    threads = SimThreads(clock)
    made = []
    for path in paths:
        log_dir = LogDir(path, disk, clock, SimRandom(), threads, min_free_bytes=0)
        log_dir.open()
        made.append(log_dir)
    return made


def registry_of(disk: SimFilesystem, log_dirs: list[LogDir]) -> TopicRegistry:
    return TopicRegistry(disk, SimThreads(SimClock()).mutex(), log_dirs)


def loaded(disk: SimFilesystem, log_dirs: list[LogDir]) -> TopicRegistry:
    """As a start has it, before it writes."""
    registry = registry_of(disk, log_dirs)
    registry.read()
    registry.choose()
    return registry


def test_equal_generations_of_different_histories_are_refused() -> None:
    disk = SimFilesystem()
    first = registry_of(disk, dirs_of(disk, ("/a",)))
    first.change(first.state.with_topics([topic_of(1)]))
    second = registry_of(disk, dirs_of(disk, ("/b",)))
    second.change(second.state.with_topics([topic_of(2)]))
    with pytest.raises(InvalidConfig, match="different histories"):
        loaded(disk.kill(), dirs_of(disk, ("/a", "/b")))


def topic_of(number: int) -> RegisteredTopic:
    return RegisteredTopic(UUID(int=1000 + number), f"t{number}", 1)


@dataclass(slots=True)
class Model:
    """Names that were acknowledged, and the one change that nobody was told about."""

    living: set[str] = field(default_factory=set)
    altered: dict[str, RegisteredTopic] = field(default_factory=dict)
    broker: dict[str, str] = field(default_factory=dict)
    dead: set[UUID] = field(default_factory=set)


class RegistryMachine(RuleBasedStateMachine):
    """One directory at a time may be away; a crash cuts a change anywhere."""

    @initialize()
    def start(self) -> None:
        self.disk = SimFilesystem()
        self.model = Model()
        self.number = 0
        self.away: str | None = None
        self.open()

    def open(self) -> None:
        paths = tuple(path for path in PATHS if path != self.away)
        self.dirs = dirs_of(self.disk, paths)
        self.registry = loaded(self.disk, self.dirs)
        self.registry.spread()

    @rule()
    def create(self) -> None:
        self.number += 1
        topic = topic_of(self.number)
        self.registry.change(self.registry.state.with_topics([topic]))
        self.model.living.add(topic.name)

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if self.model.living:
            name = data.draw(st.sampled_from(sorted(self.model.living)))
            self.model.dead.add(self.registry.state.topics[name].topic_id)
            self.registry.change(self.registry.state.without_topic(name))
            self.model.living.discard(name)
            self.model.altered.pop(name, None)

    def altered_topic(self, data: st.DataObject) -> RegisteredTopic:
        self.number += 1
        topic = self.registry.state.topics[data.draw(st.sampled_from(sorted(self.model.living)))]
        configs = MappingProxyType({"flush.ms": str(self.number)})
        return replace(topic, partition_count=topic.partition_count + 1, overrides=configs)

    @rule(data=st.data())
    def alter(self, data: st.DataObject) -> None:
        if self.model.living:
            topic = self.altered_topic(data)
            self.registry.change(self.registry.state.with_topics([topic]))
            self.model.altered[topic.name] = topic

    @rule()
    def alter_broker(self) -> None:
        self.number += 1
        self.model.broker = {"log.flush.interval.ms": str(self.number)}
        state = self.registry.state.with_broker_configs(self.model.broker)
        self.registry.change(state)

    def changed_in_a_crash(
        self, topic: RegisteredTopic, stop: int, mode: CrashMode, seed: int
    ) -> bool:
        """A change that a power cut ends at a call of the disk; whether it was acknowledged."""
        self.disk.stop_at(len(self.disk.operations) + stop)
        is_done = False
        with contextlib.suppress(SimulatedCrash):
            self.registry.change(self.registry.state.with_topics([topic]))
            is_done = True
        self.disk.faults.clear()
        self.disk = self.disk.crash(mode, seed)
        self.away = None
        self.open()
        return is_done

    @rule(data=st.data(), stop=STOPS, mode=MODES, seed=SEEDS)
    def crash_in_an_alteration(
        self, data: st.DataObject, stop: int, mode: CrashMode, seed: int
    ) -> None:
        """The old topic or the new one is there after the cut, never a mixture."""
        if not self.model.living:
            return
        topic = self.altered_topic(data)
        before = self.registry.state.topics[topic.name]
        is_done = self.changed_in_a_crash(topic, stop, mode, seed)
        found = self.registry.state.topics[topic.name]
        assert found in ((topic,) if is_done else (before, topic))
        self.model.altered[topic.name] = found

    @rule(path=st.sampled_from([None, *PATHS]))
    def restart_without(self, path: str | None) -> None:
        self.disk.kill()
        self.away = path
        self.open()

    @rule(path=st.sampled_from(PATHS))
    def directory_fails(self, path: str) -> None:
        if sum(log_dir.is_online for log_dir in self.dirs) > 2:
            for log_dir in self.dirs:
                if log_dir.path == path:
                    log_dir.take_offline("test")

    @rule(stop=STOPS, mode=MODES, seed=SEEDS)
    def crash_in_a_create(self, stop: int, mode: CrashMode, seed: int) -> None:
        """The change is there or not after the cut; the model follows what the disk says."""
        self.number += 1
        topic = topic_of(self.number)
        is_done = self.changed_in_a_crash(topic, stop, mode, seed)
        if is_done or topic.name in self.registry.state.topics:
            self.model.living.add(topic.name)

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        assert set(self.registry.state.topics) == self.model.living
        assert self.model.dead <= self.registry.state.deleted
        for name, topic in self.model.altered.items():
            assert self.registry.state.topics[name] == topic
        assert self.registry.state.broker_configs == self.model.broker

    @invariant()
    def every_online_directory_has_the_state_in_force(self) -> None:
        for log_dir in self.dirs:
            if log_dir.is_online and self.registry.state.generation:
                data = self.disk.read_file(f"{log_dir.path}/{REGISTRY_FILE}")
                assert decode_registry(data) == self.registry.state


TestRegistryMachine = RegistryMachine.TestCase
