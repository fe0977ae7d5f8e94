"""DaemonLogs: topics, bounds and pieces of one daemon or of a fleet of them, over HTTP.

A topic lives at one daemon, with all of its partitions: which one is asked of each, once, and again
when the answer no longer holds. One thread; connections are kept between calls.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kafkalog import client as daemons
from kafkalog.errors import UnknownPartition, UnknownTopic
from kafkalog.format.topic_names import is_internal
from kafkalog.spark.logs import AmbiguousPartition, Bounds
from kafkalog.spark.pieces import Cuts, cut

if TYPE_CHECKING:
    from collections.abc import Collection

    from kafkalog.client.records import Isolation
    from kafkalog.spark.logs import Access, OffsetRange, Piece


def client_of(access: Access, url: str) -> daemons.Client:
    """A client with the credentials and the patience of an access."""
    retries = daemons.Retries(deadline_seconds=access.retry_seconds)
    return daemons.Client(url, credentials=access.credentials, tls=access.tls, retries=retries)


def isolation_of(access: Access) -> Isolation:
    """As the daemon names it."""
    return "read_committed" if access.read_committed else "read_uncommitted"


class DaemonLogs:
    """See `Logs`, and the module."""

    def __init__(self, access: Access) -> None:
        self._isolation = isolation_of(access)
        self._clients = {url: client_of(access, url) for url in access.urls}
        self._homes: dict[str, list[str]] = {}

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        for client in self._clients.values():
            client.close()

    def topics(self) -> dict[str, list[int]]:
        """See Logs."""
        counts: dict[str, int] = {}
        self._homes = {}
        for url, client in self._clients.items():
            for each in client.describe_topics():
                name = each["topic_name"]
                if not is_internal(name):
                    counts[name] = max(counts.get(name, 0), each["partitions_count"])
                    self._homes.setdefault(name, []).append(url)
        return {name: list(range(counts[name])) for name in sorted(counts)}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Of those that are there, as they are named now. Raises ClientError."""
        return {
            each["topic_name"]: each["topic_id"]
            for client in self._clients.values()
            for each in client.describe_topics()
            if each["topic_name"] in topics
        }

    def client_at(self, topic: str) -> daemons.Client:
        """Of the daemon that has a topic, kept. UnknownTopic, AmbiguousPartition, ClientError."""
        return self._clients[self._home(topic)]

    def bounds(self, topic: str, partition: int) -> Bounds:
        """See Logs."""
        client = self.client_at(topic)
        try:
            start, end = client.offset_range(topic, partition)
            if self._isolation == "read_committed":
                latest = client.offset_at(topic, partition, "latest", isolation=self._isolation)
                end = latest.offset
        except daemons.NotFound as failure:
            raise self._unknown(failure, topic) from failure
        return Bounds(start, max(start, end))

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """See Logs. Times before 1970 are 1970: in the protocol, negative ones name places."""
        client = self.client_at(topic)
        try:
            found = client.offset_at(
                topic, partition, max(timestamp_ms, 0), isolation=self._isolation
            )
        except daemons.NotFound as failure:
            raise self._unknown(failure, topic) from failure
        return found.offset if found.offset >= 0 else None

    def pieces(self, wanted: OffsetRange, target_bytes: int) -> list[Piece]:
        """See Logs. Within a segment offsets are taken to be of equal size."""
        if wanted.from_offset >= wanted.to_offset:
            return []
        url = self._home(wanted.topic)
        try:
            segments = self._clients[url].explain_retention(wanted.topic, wanted.partition)
        except daemons.NotFound as failure:
            raise self._unknown(failure, wanted.topic) from failure
        cuts = Cuts()
        for each in segments["segments"]:
            if each["state"] != "deleting":
                base, end, size = each["base_offset"], each["next_offset"], each["size_bytes"]
                cuts.add_segment(base, size, _even_cuts(base, end, size, target_bytes))
        pieces = cut(url, wanted, cuts, target_bytes)
        return [_without_position(piece) for piece in pieces]

    def _home(self, topic: str) -> str:
        """The daemon that has a topic."""
        if topic not in self._homes:
            self.topics()
        homes = self._homes.get(topic, [])
        if len(homes) == 1:
            return homes[0]
        if homes:
            raise AmbiguousPartition(f"Topic {topic} is at {' and at '.join(homes)}")
        raise UnknownTopic(f"There is no topic {topic} at {', '.join(self._clients)}")

    def _unknown(self, failure: daemons.NotFound, topic: str) -> UnknownTopic | UnknownPartition:
        """What a daemon's 404 means here; where the topic lives is asked anew next time."""
        self._homes.pop(topic, None)
        kind = UnknownPartition if isinstance(failure, daemons.UnknownPartition) else UnknownTopic
        return kind(failure.message)


def _even_cuts(
    base_offset: int, next_offset: int, size_bytes: int, target_bytes: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Places within a segment to cut at, as an index would have them: last offset, position."""
    count = min(size_bytes // max(target_bytes, 1), next_offset - base_offset - 1)
    steps = np.arange(1, max(count, 0) + 1, dtype=np.int64)
    table = np.empty((len(steps), 2), np.int64)
    share = 1 / (len(steps) + 1)
    table[:, 0] = base_offset - 1 + (steps * share * (next_offset - base_offset)).astype(np.int64)
    table[:, 1] = (steps * share * size_bytes).astype(np.int64)
    return table


def _without_position(piece: Piece) -> Piece:
    return replace(piece, start_position=None)
