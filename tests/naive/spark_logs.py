"""Logs as lists of timestamps: the plain twin of `kafkalog.spark.logs.open.Logs` for plans."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafkalog.errors import UnknownPartition, UnknownTopic
from kafkalog.spark.logs.values import Bounds, OffsetRange, Piece

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kafkalog.format.topic_names import TopicPartition


@dataclass
class NaiveLog:
    """One partition: a timestamp for each offset from ``start`` on."""

    start: int = 0
    timestamps_ms: list[int] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.start + len(self.timestamps_ms)


class NaiveLogs:
    """Partitions by topic and number; ``offsets_a_piece`` stands for targetBytes."""

    def __init__(self, logs: dict[str, dict[int, NaiveLog]], offsets_a_piece: int = 10**9) -> None:
        self.logs = logs
        self.offsets_a_piece = offsets_a_piece
        self.is_open = True
        self.ids: dict[str, str] = {}

    def topics(self) -> dict[str, list[int]]:
        return {topic: sorted(self.logs[topic]) for topic in sorted(self.logs)}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {
            topic: self.ids[topic] for topic in self.logs if topic in topics and topic in self.ids
        }

    def bounds(self, topic: str, partition: int) -> Bounds:
        log = self._log(topic, partition)
        return Bounds(log.start, log.end)

    def all_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        found = {}
        for at in partitions:
            with contextlib.suppress(UnknownTopic, UnknownPartition):
                found[at] = self.bounds(at.topic, at.partition)
        return found

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        log = self._log(topic, partition)
        for offset, found_ms in enumerate(log.timestamps_ms, log.start):
            if found_ms >= timestamp_ms:
                return offset
        return None

    def all_offsets_at(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        return {
            at: self.offset_at(at.topic, at.partition, time_ms) for at, time_ms in times_ms.items()
        }

    def pieces(self, wanted: OffsetRange, target_bytes: int) -> list[Piece]:
        assert target_bytes > 0
        found = []
        at = wanted.from_offset
        while at < wanted.to_offset:
            end = min(at + self.offsets_a_piece, wanted.to_offset)
            part = wanted._replace(from_offset=at, to_offset=end)
            found.append(Piece(part, f"/{wanted.topic}", None, end - at))
            at = end
        return found

    def all_pieces(self, ranges: Iterable[OffsetRange], target_bytes: int) -> list[Piece]:
        there = [each for each in ranges if each.partition in self.logs.get(each.topic, {})]
        return [piece for each in there for piece in self.pieces(each, target_bytes)]

    def close(self) -> None:
        self.is_open = False

    def _log(self, topic: str, partition: int) -> NaiveLog:
        if topic not in self.logs:
            raise UnknownTopic(topic)
        if partition not in self.logs[topic]:
            raise UnknownPartition(f"{topic}-{partition}")
        return self.logs[topic][partition]
