"""DaemonLogs: topics, bounds and pieces of one daemon or of a fleet of them, over HTTP.

A topic lives at one daemon, with all of its partitions: which one is asked of each, once, and again
when the answer no longer holds. One thread; connections are kept between calls.

Batches of a range of offsets from a daemon, one answer ahead of whoever takes them.

While a chunk is decoded the next one is on its way, by a thread of its own. The client tries a
request again when a connection breaks or the daemon is away for less than its patience; each
request begins behind what was delivered, so nothing comes twice.
"""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kafkalog import client as daemons
from kafkalog.errors import UnknownPartition, UnknownTopic
from kafkalog.format.records.batch_scan import BatchColumn, scan
from kafkalog.format.topic_names import is_internal
from kafkalog.spark.logs.pieces import Cuts, cut
from kafkalog.spark.logs.values import AmbiguousPartition, Bounds, Chunk, CorruptLog, DataLost

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping

    from kafkalog.client import FetchedBatches
    from kafkalog.client.records import Isolation
    from kafkalog.spark.logs.values import Access, OffsetRange, Piece


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
        self.access = access
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

    def bounds(self, topic: str, partition: int) -> Bounds:
        """See Logs."""
        client = self._clients[self._home(topic)]
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
        client = self._clients[self._home(topic)]
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

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The current ids of these topics, without topics that do not exist. Raises ClientError."""
        return {
            each["topic_name"]: each["topic_id"]
            for client in self._clients.values()
            for each in client.describe_topics()
            if each["topic_name"] in topics
        }

    def durable_end(self, topic: str, partition: int, end: int) -> int:
        """The recovery point, or ``end`` if that is lower: a power cut loses nothing below it.

        Raises UnknownTopic, AmbiguousPartition, ClientError.
        """
        described = self._clients[self._home(topic)].describe_log(topic, partition)
        return min(end, int(described["recovery_point"]))

    def report_archived(self, topic: str, offsets: Mapping[int, int], topic_id: str) -> None:
        """Tell the daemon that everything below these offsets is archived, by partition.

        A topic that was deleted, or recreated with another id, is passed over. Raises
        ClientError, AmbiguousPartition.
        """
        with contextlib.suppress(UnknownTopic, daemons.UnknownTopic):
            client = self._clients[self._home(topic)]
            client.raise_archived_offsets(topic, offsets, topic_id)

    def _home(self, topic: str) -> str:
        """The URL of the daemon that has a topic. Raises UnknownTopic, AmbiguousPartition."""
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


SLACK_BYTES = 64 << 10
"""More than a piece is said to have: its first batch begins below it, and sizes are estimates."""


def read_daemon_piece(
    piece: Piece, access: Access, chunk_bytes: int, *, check_crcs: bool
) -> Generator[Chunk, None, None]:
    """See `logs.read_piece`."""
    wanted = piece.range
    max_bytes = min(chunk_bytes, piece.size_bytes + SLACK_BYTES)
    isolation = isolation_of(access)
    with closing(client_of(access, piece.place)) as client:

        def fetch(offset: int) -> FetchedBatches:
            return client.fetch_batches(
                wanted.topic, wanted.partition, offset, max_bytes=max_bytes, isolation=isolation
            )

        with ThreadPoolExecutor(1, "kafkalog-prefetch") as ahead:
            next_offset = wanted.from_offset
            coming = ahead.submit(fetch, next_offset)
            while next_offset < wanted.to_offset:
                try:
                    fetched = coming.result()
                except daemons.ClientError as failure:
                    rest = wanted._replace(from_offset=next_offset)
                    if _lies_behind(failure, rest):
                        return
                    loss = _loss(failure, rest)
                    if loss is None:
                        raise
                    raise loss from failure
                offset, next_offset = next_offset, fetched.position.next_offset
                if next_offset == offset:
                    rest = wanted._replace(from_offset=offset)
                    raise DataLost(rest, f"nothing is readable at {offset}")
                if next_offset < wanted.to_offset:
                    coming = ahead.submit(fetch, next_offset)
                if fetched.data:
                    checked = _checked(fetched.data, piece, offset, check_crcs=check_crcs)
                    if checked:
                        yield Chunk(checked, piece.place, 0)


def _loss(failure: daemons.ClientError, rest: OffsetRange) -> DataLost | None:
    """What of the rest is missing; None: only an answer is."""
    if isinstance(failure, daemons.OffsetBelowLogStart):
        start = int(failure.details["log_start_offset"])
        end = min(start, rest.to_offset)
        return DataLost(rest._replace(to_offset=end), f"the log starts at {start}")
    if isinstance(failure, daemons.OffsetAboveLogEnd):
        return DataLost(rest, f"the log ends at {failure.details['log_end_offset']}")
    if isinstance(failure, daemons.UnknownTopic | daemons.UnknownPartition):
        return DataLost(rest, "the partition was deleted")
    lost = _lost_range(failure)
    if lost is not None:
        first, last = max(lost[0], rest.from_offset), min(lost[1], rest.to_offset - 1)
        missing = rest._replace(from_offset=first, to_offset=last + 1)
        return DataLost(missing, "the file that held them is missing or was cut short")
    return None


def _lost_range(failure: daemons.ClientError) -> tuple[int, int] | None:
    """First and last offset that a daemon says are lost; a batch that is damaged is none."""
    details = failure.details
    if isinstance(failure, daemons.DaemonFault) and "first_offset" in details:
        return int(details["first_offset"]), int(details["last_offset"])
    return None


def _lies_behind(failure: daemons.ClientError, rest: OffsetRange) -> bool:
    """Whether only what lies behind the range is lost: nothing is left of the range itself."""
    lost = _lost_range(failure)
    return lost is not None and lost[0] >= rest.to_offset


def _checked(data: bytes, piece: Piece, offset: int, *, check_crcs: bool) -> memoryview:
    """The batches of an answer that lie in the range. Raises CorruptLog."""
    rows = scan(data, check_crc=check_crcs)
    if rows.consumed_bytes != len(data):
        known = int(rows.table[-1, BatchColumn.LAST_OFFSET]) + 1 if rows.count else offset
        problem = f"it arrived broken ({rows.stop.name.lower()})"
        position = rows.stop_position
        raise CorruptLog(piece.range, known, problem, file=piece.place, position=position)
    bases = rows.column(BatchColumn.BASE_OFFSET)
    end = int(np.searchsorted(bases, piece.range.to_offset))
    stop = int(rows.column(BatchColumn.POSITION)[end]) if end < rows.count else len(data)
    return memoryview(data)[:stop]
