"""Logs of one or several daemons, over HTTP: topics, bounds and pieces, and the batches of a piece.

One daemon has all partitions of a topic. `DaemonLogs` asks all daemons for their topics once, and
again when a daemon no longer has a topic. It is for one thread, and keeps connections between
calls.

`read_daemon_piece` requests the next chunk, in a second thread, while a chunk is processed. The
client repeats a request when a connection breaks or a daemon does not answer, up to its deadline.
Each request begins after the delivered offsets, so that nothing is delivered twice.
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
from kafkalog.format.topic_names import TopicPartition, is_internal
from kafkalog.spark.logs.pieces import Cuts
from kafkalog.spark.logs.secrets import CredentialsAt
from kafkalog.spark.logs.values import (
    AmbiguousPartition,
    Bounds,
    Chunk,
    CorruptLog,
    DataLost,
    Piece,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Iterator, Mapping

    from kafkalog.client import FetchedBatches
    from kafkalog.client.records import Isolation, Place
    from kafkalog.spark.logs.values import Access, OffsetRange

_LOOK_UPS_MAX = 1_000
"""Partitions in a request for offsets."""


def client_of(access: Access, url: str) -> daemons.Client:
    """A client with the credentials and retries of an access. Raises SecretMissing, ValueError."""
    retries = daemons.Retries(deadline_seconds=access.retry_seconds)
    credentials = access.credentials
    if isinstance(credentials, CredentialsAt):
        credentials = credentials.read()
    return daemons.Client(url, credentials=credentials, tls=access.tls, retries=retries)


def isolation_of(access: Access) -> Isolation:
    """The isolation level in the words of the daemon."""
    return "read_committed" if access.read_committed else "read_uncommitted"


class DaemonLogs:
    """See `Logs`, and the module."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._isolation = isolation_of(access)
        self._clients = {url: client_of(access, url) for url in access.urls}
        self._homes: dict[str, list[str]] = {}
        # from which offset on, and how much it is; as `all_durable_ends` saw it last
        self._unarchived_bytes: dict[TopicPartition, tuple[int, int]] = {}

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
        with self._asked(topic) as client:
            start, end = client.offset_range(topic, partition)
            if self._isolation == "read_committed":
                latest = client.offset_at(topic, partition, "latest", isolation=self._isolation)
                end = latest.offset
        return Bounds(start, max(start, end))

    def all_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Bounds]:
        """See Logs. Two requests for up to a thousand partitions of a daemon."""
        wanted = list(partitions)
        starts = self._looked_up(dict.fromkeys(wanted, "earliest"))
        ends = self._looked_up(dict.fromkeys(wanted, "latest"))
        both = [at for at in wanted if at in starts and at in ends]
        return {at: Bounds(starts[at], max(starts[at], ends[at])) for at in both}

    def _looked_up(self, places: Mapping[TopicPartition, Place | int]) -> dict[TopicPartition, int]:
        """The offsets at places or times, -1 for none, without partitions that do not exist."""
        homes: dict[str, str | None] = {}
        asked: dict[tuple[str, Place | int], list[TopicPartition]] = {}
        for at, place in places.items():
            if at.topic not in homes:
                homes[at.topic] = self._home_or_none(at.topic)
            home = homes[at.topic]
            if home is not None:
                asked.setdefault((home, place), []).append(at)
        found: dict[TopicPartition, int] = {}
        for (home, place), each in asked.items():
            for begin in range(0, len(each), _LOOK_UPS_MAX):
                some = each[begin : begin + _LOOK_UPS_MAX]
                found |= self._looked_up_at(home, place, some)
        return found

    def _looked_up_at(
        self, home: str, place: Place | int, some: list[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """One request."""
        found: dict[TopicPartition, int] = {}
        names = [(at.topic, at.partition) for at in some]
        entries = self._clients[home].list_offsets(names, place, isolation=self._isolation)
        for at, entry in zip(some, entries, strict=True):
            if isinstance(entry.error, daemons.NotFound):
                self._homes.pop(at.topic, None)
            elif entry.error is not None:
                raise entry.error
            else:
                found[at] = entry.offset
        return found

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """See Logs. Times before 1970 are 1970: negative ones have another meaning in requests."""
        time_ms = max(timestamp_ms, 0)
        with self._asked(topic) as client:
            found = client.offset_at(topic, partition, time_ms, isolation=self._isolation)
        return _offset_or_none(found.offset)

    def all_offsets_at(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """See Logs, and `offset_at`."""
        found = self._looked_up({at: max(time_ms, 0) for at, time_ms in times_ms.items()})
        return {
            at: self.offset_at(at.topic, at.partition, time_ms)
            if at not in found
            else _offset_or_none(found[at])
            for at, time_ms in times_ms.items()
        }

    def pieces(self, wanted: OffsetRange, target_bytes: int) -> list[Piece]:
        """See Logs. Assumes that the records of a segment are of equal size."""
        if wanted.from_offset >= wanted.to_offset:
            return []
        if self._fits_in_one(wanted, target_bytes):
            size_bytes = self._unarchived_bytes.get(TopicPartition(*wanted[:2]), (0, 0))[1]
            return [Piece(wanted, self._home(wanted.topic), None, size_bytes)]
        with self._asked(wanted.topic) as client:
            segments = client.explain_retention(wanted.topic, wanted.partition)
        cuts = Cuts(wanted, target_bytes)
        for each in segments["segments"]:
            if each["state"] != "deleting":
                base, end, size = each["base_offset"], each["next_offset"], each["size_bytes"]
                cuts.add_segment(base, size, _even_cuts(base, end, size, target_bytes))
        pieces = cuts.pieces(self._home(wanted.topic))
        return [replace(piece, start_position=None) for piece in pieces]

    def all_pieces(self, ranges: Iterable[OffsetRange], target_bytes: int) -> list[Piece]:
        """See Logs."""
        found: list[Piece] = []
        for each in ranges:
            with contextlib.suppress(UnknownTopic, UnknownPartition):  # deleted meanwhile
                found += self.pieces(each, target_bytes)
        return found

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The current ids of these topics, without topics that do not exist. Raises ClientError."""
        return {
            each["topic_name"]: each["topic_id"]
            for client in self._clients.values()
            for each in client.describe_topics()
            if each["topic_name"] in topics
        }

    def all_durable_ends(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The recovery points, or ``ends`` if these are lower: a power cut loses nothing below.

        A request a topic. Without partitions that do not exist (any more). Raises
        AmbiguousPartition, ClientError.
        """
        found: dict[TopicPartition, int] = {}
        for topic in dict.fromkeys(at.topic for at in ends):
            with contextlib.suppress(UnknownTopic), self._asked(topic) as client:
                for each in client.archived_offsets(topic):
                    at = TopicPartition(topic, each["partition"])
                    if at in ends:
                        found[at] = min(ends[at], each["recovery_point"])
                        begin = max(each["archived_offset"], each["log_start_offset"])
                        self._unarchived_bytes[at] = begin, each["lag_bytes"]
        return found

    def _fits_in_one(self, wanted: OffsetRange, target_bytes: int) -> bool:
        """Whether a range is one piece, as far as is known without its segments."""
        if wanted.to_offset - wanted.from_offset == 1:
            return True
        known = self._unarchived_bytes.get(TopicPartition(*wanted[:2]))
        return known is not None and known[0] <= wanted.from_offset and known[1] <= target_bytes

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

    def _home_or_none(self, topic: str) -> str | None:
        try:
            return self._home(topic)
        except UnknownTopic:
            return None

    @contextlib.contextmanager
    def _asked(self, topic: str) -> Iterator[daemons.Client]:
        """The client of the topic's daemon. After its 404, the next call looks for it again."""
        client = self._clients[self._home(topic)]
        try:
            yield client
        except daemons.NotFound as failure:
            self._homes.pop(topic, None)
            is_partition = isinstance(failure, daemons.UnknownPartition)
            kind = UnknownPartition if is_partition else UnknownTopic
            raise kind(failure.message) from failure


def _offset_or_none(offset: int) -> int | None:
    return offset if offset >= 0 else None


def _even_cuts(
    base_offset: int, next_offset: int, size_bytes: int, target_bytes: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Evenly spaced places to split a segment, like entries of an index: last offset, position."""
    count = min(size_bytes // max(target_bytes, 1), next_offset - base_offset - 1)
    steps = np.arange(1, max(count, 0) + 1, dtype=np.int64)
    table = np.empty((len(steps), 2), np.int64)
    share = 1 / (len(steps) + 1)
    table[:, 0] = base_offset - 1 + (steps * share * (next_offset - base_offset)).astype(np.int64)
    table[:, 1] = (steps * share * size_bytes).astype(np.int64)
    return table


SLACK_BYTES = 64 << 10
"""Added to the size of a piece, which is an estimate: its first batch may begin before it."""


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
                    lost = _lost_range(failure)
                    if lost is not None and lost[0] >= rest.to_offset:
                        return  # the range has no more records
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


def daemon_topic_id(piece: Piece, access: Access) -> str | None:
    """The id of the topic that has the name now; None: it is deleted. Raises ClientError."""
    with closing(client_of(access, piece.place)) as client:
        try:
            return str(client.describe_topic(piece.range.topic)["topic_id"])
        except daemons.UnknownTopic:
            return None


def _loss(failure: daemons.ClientError, rest: OffsetRange) -> DataLost | None:
    """The offsets of the rest that are missing; None: it is another error."""
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
    """First and last lost offset in a daemon's answer; None: nothing is lost."""
    details = failure.details
    if isinstance(failure, daemons.DaemonFault) and "first_offset" in details:
        return int(details["first_offset"]), int(details["last_offset"])
    return None


def _checked(data: bytes, piece: Piece, offset: int, *, check_crcs: bool) -> memoryview:
    """The batches of an answer that are in the range. Raises CorruptLog."""
    rows = scan(data, check_crc=check_crcs)
    if rows.consumed_bytes != len(data):
        known = int(rows.table[-1, BatchColumn.LAST_OFFSET]) + 1 if rows.count else offset
        problem = f"it is damaged in the answer ({rows.stop.name.lower()})"
        position = rows.stop_position
        raise CorruptLog(piece.range, known, problem, file=piece.place, position=position)
    bases = rows.column(BatchColumn.BASE_OFFSET)
    end = int(np.searchsorted(bases, piece.range.to_offset))
    stop = int(rows.column(BatchColumn.POSITION)[end]) if end < rows.count else len(data)
    return memoryview(data)[:stop]
