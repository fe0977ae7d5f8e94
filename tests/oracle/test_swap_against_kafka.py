"""Goal: Kafka ends a swap that we began, at whatever file name it was cut off, as we end it.

Method: swap on a real disk, keep the directory before every change of a name; both load each copy.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from kafkalog.cli.offline.load import LoadOptions
from kafkalog.env.system_filesystem import SystemFilesystem
from tests.oracle.loads import LoadCase, comparable, differing_files, load_with_kafka
from tests.partition_world import NOW_MS
from tests.swap_world import CASES, LOG_END, SwapWorld

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracle.kafka import Kafka
    from tests.swap_world import Content

pytestmark = pytest.mark.oracle

CRASHED = LoadOptions(now_ms=NOW_MS, recovery_point=LOG_END)
CONFIGS = {
    "cleanup.policy": "compact",
    "segment.index.bytes": "96",
    "index.interval.bytes": "100",
}


class RecordingFilesystem(SystemFilesystem):
    """Copies a directory before each change of a name in it, once it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self._states: Path | None = None
        self.copies: list[Path] = []

    def record_to(self, states: Path) -> None:
        """Where the copies go."""
        self._states = states

    def keep(self, directory: str) -> None:
        """One more copy."""
        if self._states is not None:
            name = directory.rpartition("/")[2]
            copy = self._states / str(len(self.copies)) / name
            shutil.copytree(directory, copy)
            self.copies.append(copy)

    def rename(self, source: str, target: str) -> None:
        self.keep(source.rpartition("/")[0])
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self.keep(path.rpartition("/")[0])
        super().unlink(path)


def states_of(name: str, home: Path) -> tuple[list[Path], Content, Content]:
    """Every state of the directory during a swap, and what readers got before and after."""
    filesystem, directory = RecordingFilesystem(), home / "orders-0"
    directory.mkdir(parents=True)
    world = SwapWorld(filesystem, str(directory))
    world.fill()
    before = world.content()
    filesystem.record_to(home / "states")
    world.swap(CASES[name])
    filesystem.keep(str(directory))
    return filesystem.copies, before, world.content()


@pytest.fixture(scope="module")
def answers(
    kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[list[tuple[LoadCase, Any]], Content, Content]]:
    """By the name of the swap: every state with Kafka's answer, the contents before and after."""
    home = tmp_path_factory.mktemp("swaps")
    found, cases = {}, []
    for number, name in enumerate(CASES):
        states, before, after = states_of(name, home / str(number))
        mine = [LoadCase(state, state.parent, CRASHED, CONFIGS) for state in states]
        cases += mine
        found[name] = (mine, before, after)
    results = iter(load_with_kafka(kafka, home, cases))
    return {
        name: ([(case, next(results)) for case in mine], before, after)
        for name, (mine, before, after) in found.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_kafka_ends_our_swap(
    answers: dict[str, tuple[list[tuple[LoadCase, Any]], Content, Content]], name: str
) -> None:
    """M20: the same files as after our load, with the old or the new content, never back again."""
    states, before, after = answers[name]
    contents = []
    for case, kafkas in states:
        ours = case.load()
        assert comparable(ours) == comparable(kafkas), case.source
        assert differing_files(case.kafkas, case.ours) == [], case.source
        contents.append(SwapWorld(SystemFilesystem(), str(case.kafkas)).content())
    changed = contents.index(after)
    assert contents == [before] * changed + [after] * (len(contents) - changed)
    assert 0 < changed < len(contents) - 1
